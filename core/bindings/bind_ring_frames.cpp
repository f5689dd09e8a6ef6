// Frames through a ring, for Python: an image is written once, into its reader's memory, and opened where it lies.
//
// A record holds the same bytes as a frame on a socket: a head of 64 bytes, then an image or nothing (frames.hpp).
// Records begin on a cache line, so images are aligned.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include "bindings/bind_ring_waiting.hpp"
#include "image/frames.hpp"
#include "image/image_codec.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {

namespace {

using SharedConsumer = std::shared_ptr<ring::Consumer>;

// A record, released when the last batch in it has gone; any thread may drop it.
struct HeldRecord {
    HeldRecord(SharedConsumer owner, ring::Record&& taken) : consumer(std::move(owner)), record(std::move(taken)) {}
    HeldRecord(const HeldRecord&) = delete;
    HeldRecord& operator=(const HeldRecord&) = delete;
    ~HeldRecord() { consumer->release(record); }

    SharedConsumer consumer;
    ring::Record record;
};

struct RingFrame {
    FrameHead head;
    uint32_t producer = 0;
    bool is_end = false;    // the last frame of this producer
    bool is_moved = false;  // the last frame that it sends through this ring
    uint64_t bytes = 0;   // of the record
    std::shared_ptr<const HeldRecord> held;  // where there is an image
};

void write_frame(ring::Producer& producer, const ring::Span& span, uint32_t edge, const PreparedImage& image, int64_t value) {
    const auto bytes = static_cast<uint32_t>(image.plan.bytes);
    try {
        const FrameHead head{bytes, FRAME_DATA, {}, edge, static_cast<uint32_t>(image.plan.rows), value,
                             image.sent_ns != 0 ? image.sent_ns : wall_ns()};
        std::memcpy(span.data, &head, sizeof(head));
        image.write(reinterpret_cast<uint8_t*>(span.data) + sizeof(head));
    } catch (...) {
        producer.abandon(span);
        throw;
    }
    producer.publish(span);
}

// False when the ring has no space for it; the record is at most part_bytes_max long.
bool send_image(ring::Producer& producer, uint32_t edge, const PreparedImage& image, int64_t value) {
    ring::Span span;
    if (!producer.try_reserve(span, edge, static_cast<uint32_t>(sizeof(FrameHead) + image.plan.bytes))) return false;
    write_frame(producer, span, edge, image, value);
    return true;
}

// Prepares and sends in one step, without a Python object in between: after a sleep the caches are cold, and each call
// and object costs a microsecond or two. Returns the bytes of the image; 0 where there is no space until the deadline,
// or where the image is too long for one record.
uint64_t send_batch(ring::Producer& producer, uint32_t edge, const ImageCodec& codec, nb::handle batch, int64_t value,
                    const Timeout& timeout) {
    const PreparedImage image = prepare(codec, batch);
    const uint64_t length = sizeof(FrameHead) + image.plan.bytes;
    ring::Span span;
    if (length > producer.segment().part_bytes_max() ||
        !reserve(producer, span, edge, static_cast<uint32_t>(length), deadline_of(timeout)))
        return 0;
    write_frame(producer, span, edge, image, value);
    return image.plan.bytes;
}

bool send_mark(ring::Producer& producer, uint8_t kind, uint32_t edge, int64_t value) {
    ring::Span span;
    if (!producer.try_reserve(span, edge, sizeof(FrameHead))) return false;
    const FrameHead head{0, kind, {}, edge, 0, value, 0};
    std::memcpy(span.data, &head, sizeof(head));
    producer.publish(span);
    return true;
}

RingFrame frame_of(const SharedConsumer& consumer, ring::Record&& record, uint32_t edges) {
    RingFrame frame;
    frame.producer = record.producer;
    frame.is_end = (record.flags & ring::END) != 0;
    frame.is_moved = (record.flags & ring::MOVED) != 0;
    frame.bytes = record.length;
    const auto held = std::make_shared<const HeldRecord>(consumer, std::move(record));
    if (frame.is_end || frame.is_moved) return frame;
    if (frame.bytes < sizeof(FrameHead))
        throw ImageFault("a record of " + std::to_string(frame.bytes) + " bytes arrived; a frame has at least 64");
    std::memcpy(&frame.head, held->record.data, sizeof(FrameHead));
    const std::string fault = frame_fault(frame.head, edges);
    if (!fault.empty()) throw ImageFault(fault);
    if (frame.head.length != frame.bytes - sizeof(FrameHead))
        throw ImageFault("a frame claims " + std::to_string(frame.head.length) + " bytes in a record of " +
                         std::to_string(frame.bytes));
    if (frame.head.kind == FRAME_DATA) frame.held = held;
    return frame;
}

// The frames that have come, without waiting.
nb::list take_frames(const SharedConsumer& consumer, uint32_t edges, uint32_t limit) {
    nb::list frames;
    ring::Record record;
    for (uint32_t i = 0; i < limit; i++) {
        if (!poll(*consumer, record)) break;
        frames.append(nb::cast(frame_of(consumer, std::move(record), edges)));
    }
    return frames;
}

// The next frame, waited for on the futex.
std::optional<RingFrame> next_frame(const SharedConsumer& consumer, uint32_t edges, const Timeout& timeout) {
    ring::Record record;
    if (!await_record(*consumer, record, timeout)) return std::nullopt;
    return frame_of(consumer, std::move(record), edges);
}

const uint8_t* body_of(const RingFrame& frame) {
    return reinterpret_cast<const uint8_t*>(frame.held->record.data) + sizeof(FrameHead);
}

nb::object open_frame(const RingFrame& frame, const ImageCodec& codec) {
    if (!frame.held) throw ImageFault("the frame holds no image");
    return open_batch(codec, body_of(frame), frame.head.length, frame.held);
}

}  // namespace

void bind_ring_frames(nb::module_& module) {
    nb::class_<RingFrame>(module, "RingFrame")
        .def_prop_ro("kind", [](const RingFrame& frame) { return frame.head.kind; })
        .def_prop_ro("edge", [](const RingFrame& frame) { return frame.head.edge; })
        .def_prop_ro("rows", [](const RingFrame& frame) { return frame.head.rows; })
        .def_prop_ro("value", [](const RingFrame& frame) { return frame.head.value; })
        .def_prop_ro("size", [](const RingFrame& frame) { return frame.head.length; })
        .def_prop_ro("sent_ns", [](const RingFrame& frame) { return frame.head.sent_ns; })
        .def_ro("producer", &RingFrame::producer)
        .def_ro("is_end", &RingFrame::is_end)
        .def_ro("is_moved", &RingFrame::is_moved)
        .def_ro("bytes", &RingFrame::bytes)
        .def("open", &open_frame);
    module.def("ring_send_image", &send_image, "producer"_a, "edge"_a, "image"_a, "value"_a);
    module.def("ring_send_batch", &send_batch, "producer"_a, "edge"_a, "codec"_a, "batch"_a, "value"_a,
               "timeout"_a.none() = 0.0);
    module.def("ring_send_mark", &send_mark, "producer"_a, "kind"_a, "edge"_a, "value"_a);
    module.def("ring_take_frames", &take_frames, "consumer"_a, "edges"_a, "limit"_a);
    module.def("ring_next_frame", &next_frame, "consumer"_a, "edges"_a, "timeout"_a = nb::none());
}

}  // namespace penstock
