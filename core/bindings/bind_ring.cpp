// The ring for Python: segments, producers, consumers, and records that are buffers.
//
// Waiting happens without the interpreter's lock, in slices, so that signals are seen. A record holds its consumer and
// with it the mapping: a batch that outlives its ring is safe.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings/bind_ring_waiting.hpp"
#include "ring/ring_gather.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {

namespace {

using ring::Deadline;

constexpr uint64_t COPY_WITH_LOCK_MAX = 64 * 1024;  // longer copies let other threads run

// A buffer of the caller's, held while it is read.
class Held {
   public:
    explicit Held(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    Held(Held&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
        if (view_.obj != nullptr) PyBuffer_Release(&view_);
    }
    const void* data() const { return view_.buf; }
    uint64_t length() const { return static_cast<uint64_t>(view_.len); }

   private:
    Py_buffer view_{};
};

using SharedProducer = std::shared_ptr<ring::Producer>;
using SharedConsumer = std::shared_ptr<ring::Consumer>;

void copy(ring::Gather& gather, const ring::Span& span) {
    if (span.length <= COPY_WITH_LOCK_MAX) return gather.copy(span.data, span.length);
    const nb::gil_scoped_release free;
    gather.copy(span.data, span.length);
}

bool send(ring::Producer& producer, uint32_t target, ring::Gather& gather, const Deadline& deadline, uint32_t flags) {
    const uint64_t whole = gather.length(), part_max = producer.segment().part_bytes_max();
    ring::Span span;
    if (whole <= part_max) {
        if (!reserve(producer, span, target, static_cast<uint32_t>(whole), deadline, flags)) return false;
        copy(gather, span);
        producer.publish(span);
        return true;
    }
    for (uint64_t done = 0; done < whole; done += span.length) {
        const uint64_t now = std::min(part_max, whole - done);
        const uint32_t place = (done == 0 ? ring::FIRST : 0) | (done + now == whole ? ring::LAST : 0);
        if (!reserve(producer, span, target, static_cast<uint32_t>(now), deadline, flags | ring::PART | place, whole))
            return false;
        copy(gather, span);
        producer.publish(span);
    }
    return true;
}

bool send_two(ring::Producer& producer, uint32_t target, nb::handle first, nb::handle second, const Timeout& timeout) {
    const Held one(first);
    std::optional<Held> two;
    if (!second.is_none()) two.emplace(second);
    const uint64_t extra = two ? two->length() : 0, whole = one.length() + extra;
    if (whole > producer.segment().part_bytes_max()) {
        ring::Gather gather;
        gather.add(one.data(), one.length());
        if (two) gather.add(two->data(), extra);
        return send(producer, target, gather, deadline_of(timeout), 0);
    }
    ring::Span span;  // the common case: one piece, no list
    if (!reserve(producer, span, target, static_cast<uint32_t>(whole), deadline_of(timeout))) return false;
    const auto fill = [&] {
        if (one.length() != 0) std::memcpy(span.data, one.data(), one.length());
        if (extra != 0) std::memcpy(span.data + one.length(), two->data(), extra);
    };
    if (whole <= COPY_WITH_LOCK_MAX) {
        fill();
    } else {
        const nb::gil_scoped_release free;
        fill();
    }
    producer.publish(span);
    return true;
}

std::vector<Held> held(const nb::sequence& objects) {
    std::vector<Held> all;
    for (const nb::handle object : objects) all.emplace_back(object);
    return all;
}

// Under one head, each message has an inner head that holds its length alone (the paper's batch model); both are padded
// to 8 bytes.
bool send_batch(ring::Producer& producer, uint32_t target, const nb::sequence& messages, const Timeout& timeout) {
    static constexpr std::byte padding[8]{};
    const std::vector<Held> all = held(messages);
    std::vector<uint64_t> lengths;
    for (const Held& message : all) lengths.push_back(message.length());
    ring::Gather gather;
    for (size_t i = 0; i < all.size(); i++) {
        gather.add(&lengths[i], 8);
        gather.add(all[i].data(), lengths[i]);
        gather.add(padding, (8 - lengths[i] % 8) % 8);
    }
    return send(producer, target, gather, deadline_of(timeout), ring::BATCH);
}

bool send_part(ring::Producer& producer, uint32_t target, nb::handle piece, uint64_t whole, bool first, bool last,
               const Timeout& timeout) {
    const Held data(piece);
    const uint64_t part_max = producer.segment().part_bytes_max();
    if (data.length() > part_max)
        throw ring::Refused("a part of " + std::to_string(data.length()) + " bytes; this ring takes " +
                            std::to_string(part_max));
    const uint32_t flags = ring::PART | (first ? ring::FIRST : 0) | (last ? ring::LAST : 0);
    ring::Span span;
    if (!reserve(producer, span, target, static_cast<uint32_t>(data.length()), deadline_of(timeout), flags, whole))
        return false;
    ring::Gather gather;
    gather.add(data.data(), data.length());
    copy(gather, span);
    producer.publish(span);
    return true;
}

// The last record of a producer, which has no payload.
bool send_last(ring::Producer& producer, uint32_t flag, const Timeout& timeout) {
    ring::Span span;
    if (!reserve(producer, span, 0, 0, deadline_of(timeout), flag)) return false;
    producer.publish(span);
    return true;
}

// Reserved space as a writable buffer.
class SpanHandle {
   public:
    SpanHandle(SharedProducer producer, const ring::Span& span) : producer_(std::move(producer)), span_(span) {}
    SpanHandle(SpanHandle&& other) noexcept : producer_(std::move(other.producer_)), span_(other.span_) {}
    SpanHandle(const SpanHandle&) = delete;
    SpanHandle& operator=(const SpanHandle&) = delete;
    ~SpanHandle() {
        if (producer_) producer_->abandon(span_);
    }

    const ring::Span& span() const {
        if (!producer_) throw ring::Refused("the span was published or abandoned already");
        return span_;
    }
    void publish() { return producer_or_fail()->publish(span_); }
    void abandon() { return producer_or_fail()->abandon(span_); }
    void leave() {
        if (producer_) abandon();
    }
    int views = 0;

   private:
    SharedProducer producer_or_fail() {
        span();
        if (views != 0) throw ring::Refused("a view of the span is still held; release it before publishing");
        return std::exchange(producer_, nullptr);
    }
    SharedProducer producer_;
    ring::Span span_;
};

// A message as a read-only buffer, which keeps its place in the ring.
class RecordHandle {
   public:
    RecordHandle(SharedConsumer consumer, ring::Record&& record)
        : consumer_(std::move(consumer)), record_(std::move(record)) {}
    RecordHandle(RecordHandle&& other) noexcept = default;
    RecordHandle(const RecordHandle&) = delete;
    RecordHandle& operator=(const RecordHandle&) = delete;
    ~RecordHandle() {
        if (consumer_) consumer_->release(record_);
    }
    const ring::Record& record() const { return record_; }
    const ring::Consumer& consumer() const { return *consumer_; }

   private:
    SharedConsumer consumer_;
    ring::Record record_;
};

int get_record_buffer(PyObject* self, Py_buffer* view, int flags) {
    const ring::Record& record = nb::inst_ptr<RecordHandle>(self)->record();
    return PyBuffer_FillInfo(view, self, const_cast<std::byte*>(record.data), static_cast<Py_ssize_t>(record.length), 1,
                             flags);
}

int get_span_buffer(PyObject* self, Py_buffer* view, int flags) {
    SpanHandle& handle = *nb::inst_ptr<SpanHandle>(self);
    try {
        const ring::Span& span = handle.span();
        if (PyBuffer_FillInfo(view, self, span.data, span.length, 0, flags) != 0) return -1;
    } catch (const ring::Refused& error) {
        PyErr_SetString(PyExc_BufferError, error.what());
        return -1;
    }
    handle.views++;
    return 0;
}

void release_span_buffer(PyObject* self, Py_buffer*) { nb::inst_ptr<SpanHandle>(self)->views--; }

PyType_Slot record_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_record_buffer)}, {0, nullptr}};
PyType_Slot span_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_span_buffer)},
                            {Py_bf_releasebuffer, reinterpret_cast<void*>(release_span_buffer)},
                            {0, nullptr}};

nb::list batch_messages(nb::handle self) {
    const ring::Record& record = nb::cast<const RecordHandle&>(self).record();
    if ((record.flags & ring::BATCH) == 0) throw ring::Refused("the record is one message, not a batch");
    const nb::object whole = nb::steal(PyMemoryView_FromObject(self.ptr()));
    nb::list messages;
    for (uint64_t at = 0; at < record.length;) {
        uint64_t length = 0;
        if (record.length - at >= 8) std::memcpy(&length, record.data + at, 8);
        if (record.length - at < 8 || length > record.length - at - 8)
            throw ring::Fault("an inner head claims " + std::to_string(length) + " bytes beyond its record");
        const auto from = static_cast<Py_ssize_t>(at + 8);
        messages.append(nb::steal(PySequence_GetSlice(whole.ptr(), from, from + static_cast<Py_ssize_t>(length))));
        at += 8 + (length + 7) / 8 * 8;
    }
    return messages;
}

std::optional<RecordHandle> next(const SharedConsumer& consumer, const Timeout& timeout) {
    ring::Record record;
    if (!await_record(*consumer, record, timeout)) return std::nullopt;
    return RecordHandle(consumer, std::move(record));
}

nb::list drain(const SharedConsumer& consumer, uint32_t limit) {
    nb::list records;
    ring::Record record;
    for (uint32_t i = 0; i < limit && poll(*consumer, record); i++)
        records.append(nb::cast(RecordHandle(consumer, std::move(record))));
    return records;
}

nb::dict counts_of(const ring::Producer& producer) {
    const ring::ProducerCounts counts = producer.counts();
    nb::dict named;
    named["messages"] = counts.messages;
    named["bytes"] = counts.bytes;
    named["blocked_ns"] = counts.blocked_ns;
    named["waits"] = counts.waits;
    named["wakes"] = counts.wakes;
    named["retries"] = counts.retries;
    return named;
}

nb::dict counts_of(const ring::Consumer& consumer) {
    const ring::ConsumerCounts counts = consumer.counts();
    nb::dict named;
    named["messages"] = counts.messages;
    named["bytes"] = counts.bytes;
    named["skipped"] = counts.skipped;
    named["refused"] = counts.refused;
    named["abandoned"] = counts.abandoned;
    named["parts"] = counts.parts;
    named["squared_units"] = counts.squared_units;
    named["longest"] = counts.longest;
    named["parks"] = uint64_t{counts.parks};
    named["spins"] = uint64_t{counts.spins};
    named["space_wakes"] = counts.space_wakes;
    named["pinned_bytes"] = counts.pinned_bytes;
    named["unfinished"] = counts.unfinished;
    named["evictions"] = counts.evictions;
    named["restarts"] = counts.restarts;
    return named;
}

nb::object two_bases(const char* python_error) {
    const nb::object root = nb::module_::import_("penstock.errors").attr("PenstockError");
    return nb::make_tuple(root, nb::module_::import_("builtins").attr(python_error));
}

void bind_errors(nb::module_& module) {
    const nb::object root = nb::module_::import_("penstock.errors").attr("PenstockError");
    nb::exception<ring::Fault>(module, "RingFault", root);
    nb::exception<ring::Refused>(module, "RingRefused", root);
    nb::exception<ring::Gone>(module, "RingGone", two_bases("ConnectionError"));
    nb::exception<ring::NoMemory>(module, "NoSharedMemory", two_bases("OSError"));
}

void bind_segment(nb::module_& module) {
    using ring::Segment;
    nb::class_<Segment>(module, "RingSegment")
        .def(nb::new_([](uint64_t capacity, uint32_t slots, uint64_t epoch, uint32_t producers, int wake) {
                 return Segment::create({capacity, slots, producers, epoch}, wake);
             }),
             "capacity"_a, nb::kw_only(), "slots"_a = 0, "epoch"_a = 1, "producers"_a = 64, "wake"_a = -1)
        .def_static("attach", &Segment::attach, "memory"_a, "wake"_a, "epoch"_a = nb::none())
        .def("fileno", &Segment::memory)
        .def("wake_fileno", &Segment::wake)
        .def_prop_ro("capacity", &Segment::capacity)
        .def_prop_ro("slots", &Segment::slots)
        .def_prop_ro("producers", &Segment::producers)
        .def_prop_ro("epoch", &Segment::epoch)
        .def_prop_ro("part_bytes_max", &Segment::part_bytes_max);
}

void bind_producer(nb::module_& module) {
    nb::class_<SpanHandle>(module, "RingSpan", nb::type_slots(span_slots))
        .def_prop_ro("address", [](const SpanHandle& self) { return reinterpret_cast<uintptr_t>(self.span().data); })
        .def("__len__", [](const SpanHandle& self) { return self.span().length; })
        .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
        .def("__exit__", [](SpanHandle& self, const nb::args&) { self.leave(); })
        .def("publish", &SpanHandle::publish)
        .def("abandon", &SpanHandle::abandon);
    nb::class_<ring::Producer>(module, "RingProducer")
        .def(nb::new_([](std::shared_ptr<ring::Segment> segment, uint32_t identity, bool checksum) {
                 return std::make_shared<ring::Producer>(std::move(segment), identity, checksum);
             }),
             "segment"_a, "identity"_a, nb::kw_only(), "checksum"_a = false)
        .def(
            "reserve",
            [](const SharedProducer& self, uint32_t target, uint32_t length,
               const Timeout& timeout) -> std::optional<SpanHandle> {
                ring::Span span;
                if (!reserve(*self, span, target, length, deadline_of(timeout))) return std::nullopt;
                return SpanHandle(self, span);
            },
            "target"_a, "length"_a, "timeout"_a = nb::none())
        .def("send", &send_two, "target"_a, "first"_a, "second"_a = nb::none(), "timeout"_a = nb::none())
        .def("send_batch", &send_batch, "target"_a, "messages"_a, "timeout"_a = nb::none())
        .def("send_part", &send_part, "target"_a, "piece"_a, "whole"_a, nb::kw_only(), "first"_a, "last"_a,
             "timeout"_a = nb::none())
        .def(
            "send_end",
            [](ring::Producer& self, const Timeout& timeout) { return send_last(self, ring::END, timeout); },
            "timeout"_a = nb::none())
        .def(
            "send_moved",
            [](ring::Producer& self, const Timeout& timeout) { return send_last(self, ring::MOVED, timeout); },
            "timeout"_a = nb::none())
        .def("statistics", [](const ring::Producer& self) { return counts_of(self); })
        .def("check_peer", &ring::Producer::check_consumer)
        .def("notify_space", &ring::Producer::notify_space)
        .def("close", &ring::Producer::close);
}

void bind_consumer(nb::module_& module) {
    nb::class_<RecordHandle>(module, "RingRecord", nb::type_slots(record_slots))
        .def_prop_ro("target", [](const RecordHandle& self) { return self.record().target; })
        .def_prop_ro("producer", [](const RecordHandle& self) { return self.record().producer; })
        .def_prop_ro("epoch", [](const RecordHandle& self) { return self.consumer().segment().epoch(); })
        .def_prop_ro("sequence", [](const RecordHandle& self) { return self.record().sequence; })
        .def_prop_ro("address", [](const RecordHandle& self) { return reinterpret_cast<uintptr_t>(self.record().data); })
        .def_prop_ro("is_end", [](const RecordHandle& self) { return (self.record().flags & ring::END) != 0; })
        .def_prop_ro("is_moved", [](const RecordHandle& self) { return (self.record().flags & ring::MOVED) != 0; })
        .def_prop_ro("is_batch", [](const RecordHandle& self) { return (self.record().flags & ring::BATCH) != 0; })
        .def_prop_ro("in_place", [](const RecordHandle& self) { return self.record().owned == nullptr; })
        .def("__len__", [](const RecordHandle& self) { return self.record().length; })
        .def("messages", &batch_messages);
    nb::class_<ring::Consumer>(module, "RingConsumer")
        .def(nb::new_([](std::shared_ptr<ring::Segment> segment, uint32_t window, int64_t spin_ns, uint64_t message_max,
                         int64_t pin_ns) {
                 return std::make_shared<ring::Consumer>(std::move(segment),
                                                         ring::ConsumerLimits{window, spin_ns, message_max, pin_ns});
             }),
             "segment"_a, nb::kw_only(), "window"_a = 256, "spin_ns"_a = 10'000, "message_max"_a = 1 << 28,
             "pin_ns"_a = 1'000'000)
        .def("next", &next, "timeout"_a = nb::none())
        .def("drain", &drain, "limit"_a = 64)
        .def("fileno", [](const ring::Consumer& self) { return self.segment().wake(); })
        .def("arm", &ring::Consumer::arm)
        .def("disarm", &ring::Consumer::disarm)
        .def("signal", [](const ring::Consumer& self) { ring::eventfd_signal(self.segment().wake()); })
        .def("wake_for_space", &ring::Consumer::wake_for_space, "identity"_a, "wake"_a)
        .def("departed", &ring::Consumer::departed)
        .def("revoke", &ring::Consumer::revoke, "identity"_a)
        .def("statistics", [](const ring::Consumer& self) { return counts_of(self); })
        .def("close", &ring::Consumer::close);
}

}  // namespace

void bind_ring(nb::module_& module) {
    bind_errors(module);
    bind_segment(module);
    bind_producer(module);
    bind_consumer(module);
}

}  // namespace penstock
