#include "image/frames.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

namespace penstock {

Block::Block(size_t size)
    : data(static_cast<uint8_t*>(std::aligned_alloc(IMAGE_ALIGNMENT, aligned(size)))), bytes(aligned(size)) {
    if (data == nullptr) throw std::bad_alloc();
}

bool BlockPool::is_free(const std::shared_ptr<Block>& block) {
    if (block.use_count() != 1) return false;
    std::atomic_thread_fence(std::memory_order_acquire);  // other threads' last reads come before our next write
    return true;
}

std::shared_ptr<Block> BlockPool::take(size_t bytes) {
    for (const auto& block : blocks_)  // a block that is far too large is left: a small batch might hold it for long
        if (block->bytes >= bytes && block->bytes <= 2 * std::max(bytes, BLOCK_BYTES) && is_free(block)) return block;
    size_t rounded = BLOCK_BYTES;
    while (rounded < bytes) rounded += std::max(BLOCK_BYTES, rounded / 4);
    auto block = std::make_shared<Block>(rounded);
    if (pooled_ + rounded > POOL_BYTES_MAX) {  // make room by giving up free blocks, none of which fits
        const auto kept = std::remove_if(blocks_.begin(), blocks_.end(), [&](const auto& old) { return is_free(old); });
        blocks_.erase(kept, blocks_.end());
        pooled_ = 0;
        for (const auto& old : blocks_) pooled_ += old->bytes;
    }
    if (pooled_ + rounded <= POOL_BYTES_MAX) {
        block->pooled = true;
        blocks_.push_back(block);
        pooled_ += rounded;
    }
    return block;
}

void FrameReader::move_to(std::shared_ptr<Block> block, size_t limit) {
    const size_t begun = pending();
    if (begun > 0) std::memmove(block->data, block_->data + begin_, begun);
    block_ = std::move(block);
    limit_ = limit;
    begin_ = 0;
    end_ = begun;
}

FrameReader::Room FrameReader::room() {
    size_t frame = sizeof(FrameHead);
    if (pending() >= sizeof(FrameHead)) {
        FrameHead head;
        std::memcpy(&head, block_->data + begin_, sizeof(head));
        frame += head.length;
    }
    if (frame > LARGE_BYTES && frame > limit_ - begin_) {
        move_to(pool_.take(frame), frame);
    } else if (pending() == 0 && (block_ == nullptr || end_ > 0)) {
        // Begin again at the front of the same block once it has no readers: that memory is in the cache. This reader
        // and the pool hold a pooled block twice; of a block that a full pool did not take, a second hold is a
        // reader's.
        const bool ours = block_ != nullptr && block_->bytes == BLOCK_BYTES &&
                          block_.use_count() == (block_->pooled ? 2 : 1);
        if (ours) std::atomic_thread_fence(std::memory_order_acquire);
        if (ours) {
            begin_ = end_ = 0;
            limit_ = BLOCK_BYTES;
        } else if (limit_ - end_ < LARGE_BYTES) {
            block_.reset();
            move_to(pool_.take(BLOCK_BYTES), BLOCK_BYTES);
        }
    } else if (frame > limit_ - begin_) {
        move_to(pool_.take(BLOCK_BYTES), BLOCK_BYTES);
    }
    const size_t free = limit_ - end_;
    return {block_->data + end_, large_ && pending() < sizeof(FrameHead) ? sizeof(FrameHead) - pending() : free};
}

bool FrameReader::received(size_t bytes, std::vector<Frame>& frames) {
    end_ += bytes;
    while (pending() >= sizeof(FrameHead)) {
        Frame frame;
        std::memcpy(&frame.head, block_->data + begin_, sizeof(FrameHead));
        if (!check(frame.head)) return false;
        const size_t whole = sizeof(FrameHead) + frame.head.length;
        if (frame.head.kind == FRAME_DATA) large_ = whole > LARGE_BYTES;
        if (pending() < whole) return true;
        if (frame.head.kind == FRAME_DATA) {
            frame.block = block_;
            frame.body = block_->data + begin_ + sizeof(FrameHead);
        }
        begin_ += whole;
        frames.push_back(std::move(frame));
    }
    return true;
}

bool FrameReader::check(const FrameHead& head) {
    fault_ = frame_fault(head, edges_);
    return fault_.empty();
}

std::string frame_fault(const FrameHead& head, uint32_t edges) {
    if (head.kind < FRAME_DATA || head.kind > FRAME_SLICE)
        return "a frame of unknown kind " + std::to_string(head.kind) + " arrived; the peer speaks another version";
    if (head.edge >= edges)
        return "a frame names edge " + std::to_string(head.edge) + "; this job has " + std::to_string(edges);
    if (head.length > BODY_BYTES_MAX || head.length % IMAGE_ALIGNMENT != 0 ||
        (head.length > 0) != (head.kind == FRAME_DATA))
        return "a frame of kind " + std::to_string(head.kind) + " claims " + std::to_string(head.length) +
               " bytes; the limit is " + std::to_string(BODY_BYTES_MAX) + " in multiples of 64";
    return {};
}

}  // namespace penstock
