// How batches come from pyarrow and go back: as arrays of the C Data Interface, with schemas parsed once.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "kernels/columns/array_out.hpp"
#include "kernels/columns/column.hpp"

namespace penstock {

// The types of a schema's columns, made once and used for every batch of that schema.
struct Layout {
    Type root;  // a struct of the columns
};

// Below this many rows the interpreter lock is kept: giving it up and asking for it again costs more than the work.
inline constexpr int64_t ROWS_WORTH_UNLOCKING = 4096;

class Unlocked {
   public:
    explicit Unlocked(int64_t rows) : state_(rows >= ROWS_WORTH_UNLOCKING ? PyEval_SaveThread() : nullptr) {}
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() {
        if (state_ != nullptr) PyEval_RestoreThread(state_);
    }

   private:
    PyThreadState* state_;
};

// `schema` is what pyarrow's Schema.__arrow_c_schema__ gives.
std::unique_ptr<Layout> make_layout(nanobind::handle capsule);

std::shared_ptr<const Batch> import_batch(const Layout& layout, nanobind::handle batch);

// The array of a batch, without its schema; the caller releases it.
void export_from(nanobind::handle batch, ArrowArray* out);

// A pyarrow.RecordBatch that takes the array over. Where that fails, the array is released.
nanobind::object import_into(ArrowArray* array, nanobind::handle schema);

// A pyarrow.RecordBatch of that schema (a pyarrow.Schema).
nanobind::object to_pyarrow(int64_t rows, std::vector<ArrayOut>&& columns, nanobind::handle schema);

}  // namespace penstock
