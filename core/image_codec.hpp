// What Python holds of images: a codec for each schema, a batch that is about to be written, and whatever keeps bytes alive.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "exchange.hpp"
#include "image.hpp"

namespace penstock {

struct ImageCodec {
    ImageCodec(nanobind::handle capsule, nanobind::object pyarrow_schema);

    ImageSchema schema;
    nanobind::object pyarrow_schema;
};

// A batch whose image has been measured. It holds the batch's buffers until it is let go.
struct Prepared {
    Prepared(const ImageCodec& codec, nanobind::handle batch);
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;
    ~Prepared();

    void write(uint8_t* to) const;

    const ImageSchema* schema;
    ArrowArray array{};
    ImagePlan plan;
};

// The bytes of a Python object for as long as this is held; lets go of them under the interpreter's lock, from any thread.
struct PythonBytes {
    explicit PythonBytes(nanobind::handle owner, int flags = PyBUF_SIMPLE);
    PythonBytes(const PythonBytes&) = delete;
    PythonBytes& operator=(const PythonBytes&) = delete;
    ~PythonBytes();

    const uint8_t* data() const { return static_cast<const uint8_t*>(view.buf); }
    size_t size() const { return static_cast<size_t>(view.len); }

    Py_buffer view{};
};

// A pyarrow.RecordBatch that reads these bytes in place and keeps their owner.
nanobind::object open_batch(const ImageCodec& codec, const uint8_t* image, size_t size, std::shared_ptr<const void> keep);

}  // namespace penstock
