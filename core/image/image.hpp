// Batch images: a record batch as one stretch of bytes that is written with one copy and read where it lies.
//
//     head          64 bytes: magic, fingerprint of the types, rows, bytes, how many buffers
//     node heads    32 bytes for each array of the tree but the root, in pre-order: length, null count, offset, variadic
//     lengths       8 bytes for each buffer, in the same order
//     buffers       each at the next multiple of 64 bytes, with zeros between
//
// A buffer's position follows from the lengths before it, so no position can point outside the image. Both ends know
// the types and have parsed them once; the fingerprint confirms that these are the same types. A slice is cut to what
// it shows, and a dictionary travels with its batch. How, and why not Arrow IPC: docs/decisions/0015-batch-images.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/columns/arrow_abi.hpp"

namespace penstock {

inline constexpr size_t IMAGE_ALIGNMENT = 64;

inline constexpr size_t aligned(size_t bytes) { return (bytes + IMAGE_ALIGNMENT - 1) & ~(IMAGE_ALIGNMENT - 1); }

// Bytes that are no image of the expected types.
struct ImageFault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Shape : uint8_t {
    Null,
    Bits,
    Fixed,
    Bytes,
    View,
    List,  // also maps
    ListView,
    FixedList,
    Struct,
    SparseUnion,
    DenseUnion,
    RunEnds,
};

// One array of the tree.
struct ImageNode {
    Shape shape = Shape::Null;
    bool wide = false;     // 64-bit offsets
    int64_t width = 0;     // bytes per value; of a FixedList: items per value
    int32_t buffers = 0;   // without variadic ones
    int32_t dictionary = -1;  // number of the node that holds the values
    int64_t row_bytes = -1;   // what metering counts each value for, where all are alike (payload.hpp)
    std::vector<int32_t> children;
    std::array<int8_t, 128> child_of{};  // unions: type code -> child, or -1
    std::string path;                    // for messages
};

// The types of a stream's columns as a list of nodes in pre-order; node 0 is the batch itself.
struct ImageSchema {
    explicit ImageSchema(const ArrowSchema& schema);

    std::vector<ImageNode> nodes;
    uint64_t fingerprint = 0;
};

struct ImageHead {
    uint32_t magic = 0;
    uint32_t buffers = 0;
    uint64_t fingerprint = 0;
    int64_t rows = 0;
    uint64_t bytes = 0;
    uint64_t reserved[4] = {};
};
static_assert(sizeof(ImageHead) == 64);

struct NodeHead {
    int64_t length = 0;
    int64_t null_count = 0;
    int64_t offset = 0;
    int64_t variadic = 0;  // data buffers of a view
};

inline constexpr uint32_t IMAGE_MAGIC = 0x31495350;  // "PSI1"

// A buffer as it will stand in the image, and how it comes from the batch's own memory. Those that gather take the values
// of chosen rows.
struct Piece {
    enum class How : uint8_t {
        Copy,
        CopyOwn,  // from the plan's memory, which is freed before the batch's
        ZeroFirst,
        Rebase32,
        Rebase64,
        Positions32,
        Positions64,
        DenseOffsets,
        Views,
        GatherBits,
        GatherFixed,
        GatherOffsets32,
        GatherOffsets64,
        GatherBytes32,
        GatherBytes64,
    };
    How how = How::Copy;
    const uint8_t* source = nullptr;
    size_t bytes = 0;
    int64_t base = 0;   // what is subtracted; of a union and a view: where their bases begin; bits: the first; else a width
    int64_t zeros = 0;  // leading values that are not shown
    const uint8_t* other = nullptr;  // sizes of a list view, type codes of a union, validity of a view, data of text
    const uint32_t* rows = nullptr;
    int64_t count = 0;
};

// What an image of one array will hold. The plan points into the array and must not outlive it. It also points into
// itself, so it must not be copied.
struct ImagePlan {
    int64_t rows = 0;
    size_t bytes = 0;       // of the whole image
    size_t descriptor = 0;  // bytes before the first buffer
    std::vector<NodeHead> heads;
    std::vector<Piece> pieces;
    std::vector<int64_t> bases;
    std::forward_list<std::vector<uint32_t>> rows_below;  // which rows of children are taken
    std::forward_list<std::vector<uint8_t>> own;          // buffers that are made and not copied

    void begin(const ImageSchema& schema, int64_t rows);
    void measure();  // once every piece is there

    ImagePlan() = default;
    ImagePlan(ImagePlan&&) = default;
    ImagePlan& operator=(ImagePlan&&) = default;
};

// Throws ImageFault where the array is not of the schema's shape. `plan` may be used again and keeps its memory.
void plan_image(const ImageSchema& schema, const ArrowArray& batch, ImagePlan& plan);

// The image of some rows of a batch, by index and in any order. `rows` stays the caller's.
void plan_rows(const ImageSchema& schema, const ArrowArray& batch, const uint32_t* rows, int64_t count, ImagePlan& plan);

void write_descriptor(const ImageSchema& schema, const ImagePlan& plan, uint8_t* to);
void write_piece(const ImagePlan& plan, const Piece& piece, uint8_t* to);

// All of it, `plan.bytes` from `to`, which is a multiple of 8 (and should be one of 64).
void write_image(const ImageSchema& schema, const ImagePlan& plan, uint8_t* to);

// A batch that reads in place. Everything that could lead outside the image is checked: extents, and in one pass each
// offsets, indices, views and run ends. `keep` is held until the last array of the tree is released.
void open_image(const ImageSchema& schema, const uint8_t* image, size_t size, std::shared_ptr<const void> keep,
                ArrowArray* out);

}  // namespace penstock
