// Batch images for Python. Callers have made sure that a batch has the codec's schema; images may be anything.
#include <nanobind/nanobind.h>

#include "image_codec.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

size_t write_into(const Prepared& prepared, nb::handle target) {
    const PythonBytes bytes(target, PyBUF_WRITABLE);
    if (bytes.size() < prepared.plan.bytes) throw nb::value_error("the target is shorter than the image");
    prepared.write(static_cast<uint8_t*>(bytes.view.buf));
    return prepared.plan.bytes;
}

size_t write_at(const Prepared& prepared, uintptr_t address, size_t length) {
    if (length < prepared.plan.bytes) throw nb::value_error("the span is shorter than the image");
    if (address % 8 != 0) throw nb::value_error("the span does not begin at a multiple of 8");
    prepared.write(reinterpret_cast<uint8_t*>(address));
    return prepared.plan.bytes;
}

nb::object open_owner(const ImageCodec& codec, nb::handle owner) {
    const auto bytes = std::make_shared<const PythonBytes>(owner);
    return open_batch(codec, bytes->data(), bytes->size(), bytes);
}

}  // namespace

void bind_image(nb::module_& module) {
    nb::exception<ImageFault>(module, "ImageFault", PyExc_ValueError);
    nb::class_<ImageCodec>(module, "ImageCodec")
        .def(nb::init<nb::handle, nb::object>())
        .def_ro("schema", &ImageCodec::pyarrow_schema)
        .def("prepare", [](const ImageCodec& codec, nb::handle batch) { return new Prepared(codec, batch); },
             nb::keep_alive<0, 1>())
        .def("open", &open_owner);
    nb::class_<Prepared>(module, "PreparedImage")
        .def_prop_ro("size", [](const Prepared& prepared) { return prepared.plan.bytes; })
        .def_prop_ro("rows", [](const Prepared& prepared) { return prepared.plan.rows; })
        .def("write_into", &write_into)
        .def("write_at", &write_at);
}

}  // namespace penstock
