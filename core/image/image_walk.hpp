// Shared parts of the two walks over a batch's arrays, of slices and of chosen rows. Each walk may hand over to the
// other.
#pragma once

#include "image/image.hpp"

namespace penstock {

inline bool has_validity(Shape shape) {
    return shape != Shape::Null && shape != Shape::SparseUnion && shape != Shape::DenseUnion && shape != Shape::RunEnds;
}

// Throws ImageFault unless the array has the buffers and children of its type.
inline void require_shape(const ImageNode& node, const ArrowArray& array) {
    const bool buffers = node.shape == Shape::View ? array.n_buffers >= 3 : array.n_buffers == node.buffers;
    if (!buffers || array.n_children != static_cast<int64_t>(node.children.size()) ||
        (array.dictionary != nullptr) != (node.dictionary >= 0))
        throw ImageFault("column '" + node.path + "' does not have the type of its schema");
}

// A dictionary with more values than this is cut to the values that these rows use. Cutting a smaller one costs more
// than it saves.
inline int64_t dictionary_worth_keeping(int64_t rows) { return 2 * rows + 64; }

int64_t run_end(const ArrowArray& ends, int64_t width, int64_t run);

// How many runs end at or before this row.
int64_t runs_up_to(const ArrowArray& ends, int64_t width, int64_t row);

// An array with all that is below it, as it is.
void add_whole(const ImageSchema& schema, int32_t number, const ArrowArray& array, ImagePlan& plan);

// A stretch of an array by the walk of chosen rows, which can cut dictionaries.
void add_rows(const ImageSchema& schema, int32_t number, const ArrowArray& array, int64_t start, int64_t count,
              ImagePlan& plan);

}  // namespace penstock
