// The size of a batch for metering: the bytes that its rows occupy, however and wherever they lie.
//
// It is a sum over rows, so cutting, joining and routing batches does not change it, and it is the same for a batch that
// is passed by a call and for one that is sent. A value of fixed width counts its width, a truth value 1; text and lists
// count an offset and what the row holds; a view counts 16 and what does not fit into it; a dictionary's value counts
// its index, a run's value counts for each row. Bitmaps of nulls, padding and heads do not count: they depend on how a
// batch came to be. What windows and credit count is the image (image.hpp), which is more.
#pragma once

#include "image/image.hpp"

namespace penstock {

// Bytes of every row of a node, where they are the same for all; else -1.
int64_t fixed_payload(const ImageSchema& schema, const ImageNode& node);

// Throws ImageFault where the batch is not of the schema's shape.
int64_t payload_of(const ImageSchema& schema, const ArrowArray& batch);

// The same for some of its rows, by index.
int64_t payload_of(const ImageSchema& schema, const ArrowArray& batch, const uint32_t* rows, int64_t count);

}  // namespace penstock
