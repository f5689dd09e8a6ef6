// Batch images for Python. Callers must make sure that a batch has the codec's schema; the bytes of an image may be
// anything.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "image/frames.hpp"
#include "image/image_codec.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

size_t write_into(const PreparedImage& prepared, nb::handle target) {
    const PythonBytes bytes(target, PyBUF_WRITABLE);
    if (bytes.size() < prepared.plan.bytes) throw nb::value_error("the target is shorter than the image");
    prepared.write(static_cast<uint8_t*>(bytes.view.buf));
    return prepared.plan.bytes;
}

size_t write_at(const PreparedImage& prepared, uintptr_t address, size_t length) {
    if (length < prepared.plan.bytes) throw nb::value_error("the span is shorter than the image");
    if (address % 8 != 0) throw nb::value_error("the span does not begin at a multiple of 8");
    prepared.write(reinterpret_cast<uint8_t*>(address));
    return prepared.plan.bytes;
}

nb::object open_owner(const ImageCodec& codec, nb::handle owner) {
    const auto bytes = std::make_shared<const PythonBytes>(owner);
    return open_batch(codec, bytes->data(), bytes->size(), bytes);
}

// For a target in the same process: a batch of the chosen rows, in its own memory.
nb::object open_here(const PreparedImage& prepared, const ImageCodec& codec) {
    const auto block = std::make_shared<Block>(prepared.plan.bytes);
    prepared.write(block->data);
    return open_batch(codec, block->data, prepared.plan.bytes, block);
}

// One image for each part that gets rows. Where one part gets them all, it is the image of the batch.
nb::list part_images(const ImageCodec& codec, const std::shared_ptr<HeldBatch>& held, size_t parts) {
    const Order& order = held->order;
    nb::list images;
    int64_t start = 0;
    for (size_t part = 0; part < parts; part++) {
        const int64_t count = order.ends[part] - start;
        if (count == 0) {
            images.append(nb::none());
            continue;
        }
        PreparedImage image{codec.schema, held, {}, nullptr, 0};
        if (order.single) plan_image(*codec.schema, held->array, image.plan);
        else image.rows = order.rows.data() + start, plan_rows(*codec.schema, held->array, image.rows, count, image.plan);
        images.append(nb::cast(std::move(image)));
        start = order.ends[part];
    }
    return images;
}

// The layout is of the batch's schema, as the codec is.
nb::list route_by_key(const ImageCodec& codec, const Layout& layout, nb::handle batch, const std::vector<uint32_t>& columns,
                      uint32_t parts) {
    const auto held = std::make_shared<HeldBatch>(batch);
    ArrowArray borrowed = held->array;
    borrowed.release = nullptr;  // the held batch owns it
    const Batch view(layout.root, std::move(borrowed));
    {
        const Unlocked unlocked(view.rows);
        held->order = order_by_part(hash_batch(view, columns), parts);
    }
    return part_images(codec, held, parts);
}

nb::list route_by_target(const ImageCodec& codec, nb::handle batch, nb::handle targets, uint32_t parts) {
    const auto held = std::make_shared<HeldBatch>(batch);
    const PythonBytes bytes(targets);
    if (bytes.size() != static_cast<size_t>(held->array.length) * sizeof(uint32_t))
        throw nb::value_error("routing needs a 32-bit target for each row");
    const auto* target_of = reinterpret_cast<const uint32_t*>(bytes.data());
    for (int64_t i = 0; i < held->array.length; i++)
        if (target_of[i] >= parts) throw nb::value_error("a row is routed to a part that is not there");
    held->order = order_by_target(target_of, static_cast<size_t>(held->array.length), parts);
    return part_images(codec, held, parts);
}

}  // namespace

void bind_image(nb::module_& module) {
    nb::exception<ImageFault>(module, "ImageFault", PyExc_ValueError);
    nb::class_<ImageCodec>(module, "ImageCodec")
        .def(nb::init<nb::handle, nb::object>())
        .def_ro("schema", &ImageCodec::pyarrow_schema)
        .def("prepare", &prepare)
        .def("route_by_key", &route_by_key)
        .def("route_by_target", &route_by_target)
        .def("payload",
             [](const ImageCodec& codec, nb::handle batch) { return payload_of(*codec.schema, HeldBatch(batch).array); })
        .def("open", &open_owner);
    nb::class_<PreparedImage>(module, "PreparedImage")
        .def_prop_ro("size", [](const PreparedImage& prepared) { return prepared.plan.bytes; })
        .def_prop_ro("rows", [](const PreparedImage& prepared) { return prepared.plan.rows; })
        .def_prop_ro("payload", &PreparedImage::payload)
        .def("stamp", [](PreparedImage& prepared) { prepared.sent_ns = wall_ns(); })
        .def("open", &open_here)
        .def("write_into", &write_into)
        .def("write_at", &write_at);
}

}  // namespace penstock
