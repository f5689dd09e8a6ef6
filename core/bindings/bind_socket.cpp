// Socket channels for Python. System calls run without the interpreter lock, objects are made with it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <cerrno>
#include <tuple>

#include "image/image_codec.hpp"
#include "image/socket_channel.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

[[noreturn]] void raise_errno(int error) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
}

bool flush(SocketChannel& channel) {
    int error = 0;
    {
        const nb::gil_scoped_release unlocked;
        error = channel.flush();
    }
    if (error != 0) raise_errno(error);
    return !channel.waiting();
}

// A frame sent while earlier ones wait goes behind them without a try, which would cost a system call each time.
void push(SocketChannel& channel, bool waited) {
    if (!waited || channel.error() != 0) flush(channel);
}

void send_image(SocketChannel& channel, uint32_t edge, const PreparedImage& image, int64_t value) {
    const bool waited = channel.waiting();
    channel.send_image(edge, *image.schema, image.plan, image.held, value);
    push(channel, waited);
}

void send_mark(SocketChannel& channel, uint8_t kind, uint32_t edge, int64_t value) {
    const bool waited = channel.waiting();
    channel.send_mark(kind, edge, value);
    push(channel, waited);
}

nb::object receive(SocketChannel& channel) {
    std::vector<Frame> frames;
    SocketChannel::Reading reading;
    {
        const nb::gil_scoped_release unlocked;
        reading = channel.receive(frames);
    }
    switch (reading) {
        case SocketChannel::Reading::Ended: return nb::none();
        case SocketChannel::Reading::Broken: raise_errno(channel.error());
        case SocketChannel::Reading::Faulty: throw ImageFault(channel.fault());
        default: break;
    }
    nb::list found;
    for (Frame& frame : frames) found.append(nb::cast(std::move(frame)));
    return found;
}

nb::object open_frame(const Frame& frame, const ImageCodec& codec) {
    return open_batch(codec, frame.body, frame.head.length, frame.block);
}

nb::bytes body_of(const Frame& frame) { return nb::bytes(frame.body, frame.head.length); }

std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, int64_t> statistics(const SocketChannel& channel) {
    const SocketStatistics counts = channel.statistics();
    return {counts.bytes_sent, counts.bytes_received, counts.frames_sent, counts.bytes_waiting, counts.blocked_ns};
}

}  // namespace

void bind_socket(nb::module_& module) {
    nb::exception<OutboxFull>(module, "OutboxFull", PyExc_RuntimeError);
    nb::class_<Frame>(module, "SocketFrame")
        .def_prop_ro("kind", [](const Frame& frame) { return frame.head.kind; })
        .def_prop_ro("edge", [](const Frame& frame) { return frame.head.edge; })
        .def_prop_ro("rows", [](const Frame& frame) { return frame.head.rows; })
        .def_prop_ro("value", [](const Frame& frame) { return frame.head.value; })
        .def_prop_ro("size", [](const Frame& frame) { return frame.head.length; })
        .def_prop_ro("sent_ns", [](const Frame& frame) { return frame.head.sent_ns; })
        .def("open", &open_frame)
        .def("body", &body_of);
    nb::class_<SocketChannel>(module, "SocketChannel")
        .def(nb::init<int, uint32_t, size_t>())
        .def("send_image", &send_image)
        .def("send_mark", &send_mark)
        .def("flush", &flush)
        .def("receive", &receive)
        .def("clear", &SocketChannel::clear)
        .def_prop_ro("wants_write", &SocketChannel::waiting)
        .def("statistics", &statistics);
}

}  // namespace penstock
