#include "image/image_codec.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

// Below this many bytes the interpreter lock is kept: a copy takes less than asking for the lock again.
constexpr size_t BYTES_WORTH_UNLOCKING = 256 * 1024;

const ArrowSchema& schema_in(nb::handle capsule) {
    const auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_schema"));
    if (schema == nullptr) throw nb::python_error();
    return *schema;
}

bool interpreter_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

ImageCodec::ImageCodec(nb::handle capsule, nb::object pyarrow_schema)
    : schema(std::make_shared<const ImageSchema>(schema_in(capsule))), pyarrow_schema(std::move(pyarrow_schema)) {}

PreparedImage prepare(const ImageCodec& codec, nb::handle batch) {
    PreparedImage prepared{codec.schema, std::make_shared<const HeldBatch>(batch), {}, nullptr, 0};
    plan_image(*prepared.schema, prepared.held->array, prepared.plan);
    return prepared;
}

void PreparedImage::write(uint8_t* to) const {
    if (plan.bytes < BYTES_WORTH_UNLOCKING) return write_image(*schema, plan, to);
    const nb::gil_scoped_release unlocked;
    write_image(*schema, plan, to);
}

int64_t PreparedImage::payload() const {
    return rows == nullptr ? payload_of(*schema, held->array) : payload_of(*schema, held->array, rows, plan.rows);
}

PythonBytes::PythonBytes(nb::handle owner, int flags) {
    if (PyObject_GetBuffer(owner.ptr(), &view, flags) != 0) throw nb::python_error();
}

PythonBytes::~PythonBytes() {
    if (interpreter_is_ending()) return;  // the interpreter gives its lock to no thread any more, and the process ends
    const nb::gil_scoped_acquire locked;
    PyBuffer_Release(&view);
}

nb::object open_batch(const ImageCodec& codec, const uint8_t* image, size_t size, std::shared_ptr<const void> keep) {
    ArrowArray array{};
    open_image(*codec.schema, image, size, std::move(keep), &array);
    return import_into(&array, codec.pyarrow_schema);
}

}  // namespace penstock
