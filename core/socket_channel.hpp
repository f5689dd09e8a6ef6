// One end of a connection between two workers: frames out by gathered writes, frames in without moving them.
//
// A batch is written from its own buffers: the kernel gathers head, descriptor and buffers in one call, and nothing is
// copied here but what is small or has to be rewritten. What the kernel does not take waits, and its array is held until
// it is out. The descriptor never blocks; the time from the first refusal to the next success is what the connection was
// blocked (Schneider et al., section 3). Memory that waits is bounded: the edges' credits keep it low, and the limit
// here says so when they fail to.
#pragma once

#include <sys/uio.h>

#include <deque>
#include <string>
#include <vector>

#include "array_out.hpp"
#include "frames.hpp"
#include "image.hpp"

namespace penstock {

// More waits for a connection than its limit allows: whoever sends has not heeded its credits.
struct OutboxFull : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct SocketStatistics {
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    uint64_t frames_sent = 0;
    uint64_t bytes_waiting = 0;
    int64_t blocked_ns = 0;
};

// A frame on its way out.
struct Outgoing {
    void let_go();  // of what it holds; memory of its own is kept for the next frame

    Buffer own;  // head, descriptor, and what was copied
    std::vector<iovec> parts;
    size_t next = 0;  // the first part that is not out
    size_t left = 0;  // bytes
    std::shared_ptr<const void> keep;  // what the other parts point into
};

class SocketChannel {
   public:
    SocketChannel(int descriptor, uint32_t edges, size_t waiting_max);

    // Queues an image that was planned. `keep` holds what the plan points into until it is out; what points into the plan
    // itself is copied. Throws ImageFault where the image is too large and OutboxFull where too much waits; nothing has
    // been queued then.
    void send_image(uint32_t edge, const ImageSchema& schema, const ImagePlan& plan, std::shared_ptr<const void> keep,
                    int64_t value);

    void send_mark(uint8_t kind, uint32_t edge, int64_t value);

    // Pushes out what the kernel takes. 0, or the error number of a connection that has broken.
    int flush();

    // Waits until the kernel takes bytes again, at most so long, then flushes.
    int wait_writable(int milliseconds);

    enum class Reading : uint8_t { Open, Ended, Broken, Faulty };

    // Adds the frames that have come. What follows the last good frame is told by the next call, so that none is lost.
    Reading receive(std::vector<Frame>& frames);

    bool waiting() const { return !outbox_.empty() && !held_; }

    // The mark in the otherwise empty outbox goes out with the frame that follows it at once: one system call, one wake-up.
    void hold() { held_ = true; }
    SocketStatistics statistics() const;
    int error() const { return error_; }
    const std::string& fault() const { return reader_.fault(); }

    void clear() { outbox_.clear(); }  // what waits is lost

   private:
    void require_room(size_t bytes) const;
    void queue(Outgoing&& frame);
    bool send_some();
    void advance(size_t sent);
    void unblock();

    int descriptor_;
    size_t waiting_max_;
    int error_ = 0;
    Reading state_ = Reading::Open;
    FrameReader reader_;
    std::deque<Outgoing> outbox_;
    bool held_ = false;
    Outgoing spare_;  // an empty one whose memory is used again
    std::vector<iovec> gathered_;
    int64_t blocked_since_ns_ = 0;
    SocketStatistics counts_;
};

}  // namespace penstock
