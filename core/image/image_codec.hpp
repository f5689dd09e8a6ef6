// The Python side of images: a codec for each schema, a batch that is about to be written, and a hold on a reader's
// bytes.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "kernels/columns/exchange.hpp"
#include "image/payload.hpp"
#include "kernels/columns/route.hpp"

namespace penstock {

struct ImageCodec {
    ImageCodec(nanobind::handle capsule, nanobind::object pyarrow_schema);

    std::shared_ptr<const ImageSchema> schema;
    nanobind::object pyarrow_schema;
};

// The array of a batch and, where it was routed, the order of its rows. Plans point into both.
struct HeldBatch {
    explicit HeldBatch(nanobind::handle batch) { export_from(batch, &array); }
    HeldBatch(const HeldBatch&) = delete;
    HeldBatch& operator=(const HeldBatch&) = delete;
    ~HeldBatch() {
        if (array.release != nullptr) array.release(&array);
    }

    ArrowArray array{};
    Order order;
};

// An image that has been measured and not yet written: of a batch, or of those rows of it that go to one target.
struct PreparedImage {
    void write(uint8_t* to) const;
    int64_t payload() const;  // what metering counts it for

    std::shared_ptr<const ImageSchema> schema;
    std::shared_ptr<const HeldBatch> held;
    ImagePlan plan;
    const uint32_t* rows = nullptr;  // of the held batch, `plan.rows` of them; none: all in their order
    int64_t sent_ns = 0;  // when it was given to a transport that had no room for it; 0: it has not waited
};

PreparedImage prepare(const ImageCodec& codec, nanobind::handle batch);

// Holds the bytes of a Python object. Any thread may drop it: it takes the interpreter's lock to let go.
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
