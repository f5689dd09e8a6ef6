// Frames of a worker's socket: a head of 64 bytes, then a batch image or nothing.
//
//     bytes 0-3    body length, a multiple of 64     bytes 8-11   edge (job-wide number of a pair of tasks)
//     byte  4      kind                              bytes 12-15  rows
//     bytes 5-7    zero                              bytes 16-23  value: origin time, watermark, credit, epoch or slice
//     bytes 24-31  when it was given to its transport, ns since 1970 by the sender's clock; 0: not told
//     bytes 32-63  zero
//
// The head is as long as a buffer's alignment, so every image is aligned wherever its frame begins, and is read without
// being moved. Frames are received into blocks. A block is used again when the last batch in it has gone. A large frame
// gets a block of its own, and the kernel writes it there directly.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "image/image.hpp"

namespace penstock {

struct FrameHead {
    uint32_t length = 0;
    uint8_t kind = 0;
    uint8_t zero[3] = {};
    uint32_t edge = 0;
    uint32_t rows = 0;
    int64_t value = 0;
    int64_t sent_ns = 0;
    uint64_t reserved[4] = {};
};
static_assert(sizeof(FrameHead) == IMAGE_ALIGNMENT);

enum FrameKind : uint8_t {
    FRAME_DATA = 1,
    FRAME_WATERMARK = 2,
    FRAME_END = 3,
    FRAME_CREDIT = 4,
    FRAME_EPOCH = 5,
    FRAME_SLICE = 6,
};

inline constexpr size_t BODY_BYTES_MAX = size_t{256} << 20;
inline constexpr size_t BLOCK_BYTES = size_t{256} << 10;  // small enough to stay in the cache
inline constexpr size_t LARGE_BYTES = BLOCK_BYTES / 2;     // frames that get a block of their own
inline constexpr size_t POOL_BYTES_MAX = size_t{16} << 20;  // what the pool keeps for the next frames

// The clock of all machines, as well as they agree on it: rows and frames are stamped with it.
inline int64_t wall_ns() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

// Why a head cannot belong to a job with this number of edges; empty where it can.
std::string frame_fault(const FrameHead& head, uint32_t edges);

// Aligned memory that is counted by shared_ptr.
struct Block {
    explicit Block(size_t bytes);
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { std::free(data); }

    uint8_t* data;
    size_t bytes;
    bool pooled = false;  // the pool holds it too
};

// Blocks without readers are handed out again; fresh memory costs a page fault every 4 KB.
class BlockPool {
   public:
    std::shared_ptr<Block> take(size_t bytes);
    static bool is_free(const std::shared_ptr<Block>& block);  // the pool's own hold aside

   private:
    std::vector<std::shared_ptr<Block>> blocks_;
    size_t pooled_ = 0;
};

struct Frame {
    FrameHead head;
    std::shared_ptr<const Block> block;  // what the body lies in; empty where there is none
    const uint8_t* body = nullptr;
};

// Cuts a stream of bytes into frames. It moves no bytes except the beginning of a frame that does not fit its block.
class FrameReader {
   public:
    explicit FrameReader(uint32_t edges) : edges_(edges) {}

    struct Room {
        uint8_t* data;
        size_t bytes;
    };

    // Where the next bytes should be received; never empty.
    Room room();

    // Takes in bytes that have come and adds the frames they complete. False after bytes that are no frame; `fault`
    // then says why.
    bool received(size_t bytes, std::vector<Frame>& frames);

    const std::string& fault() const { return fault_; }

   private:
    bool check(const FrameHead& head);
    void move_to(std::shared_ptr<Block> block, size_t limit);
    size_t pending() const { return end_ - begin_; }

    uint32_t edges_;
    BlockPool pool_;
    std::shared_ptr<Block> block_;
    size_t begin_ = 0;  // the first byte that belongs to no finished frame
    size_t end_ = 0;    // behind the last byte that has come
    size_t limit_ = 0;  // how far this block may be filled
    bool large_ = false;  // the last frame was large: read the next head alone, so that its body can go where it stays
    std::string fault_;
};

}  // namespace penstock
