// One end of a connection between two workers: frames out by gathered writes, frames in without moving them.
//
// A batch is written from its own buffers: the kernel gathers head, descriptor and buffers in one call. Small buffers
// and those that change are copied. Bytes that the kernel does not take wait, and their array is held until they are
// out. The descriptor is non-blocking; the time from the first refusal to the next success is the connection's blocking
// time (Schneider et al., section 3; `test_what_the_kernel_refuses_waits_and_the_time_is_counted`). The edges' credits
// keep waiting bytes low; a limit turns a fault in the credits into an error
// (`test_an_outbox_beyond_its_limit_is_our_bug`).
#pragma once

#include <sys/uio.h>

#include <deque>
#include <string>
#include <vector>

#include "kernels/columns/array_out.hpp"
#include "image/frames.hpp"
#include "image/image.hpp"

namespace penstock {

// More bytes wait for a connection than its limit allows: the sender has not kept to its credits.
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
    void let_go();  // drops the hold on other memory; own memory is kept for the next frame

    Buffer own;  // head, descriptor, and what was copied
    std::vector<iovec> parts;
    size_t next = 0;  // the first part that is not out
    size_t left = 0;  // bytes
    std::shared_ptr<const void> keep;  // what the other parts point into
};

class SocketChannel {
   public:
    SocketChannel(int descriptor, uint32_t edges, size_t waiting_max);

    // Queues a planned image. `keep` holds the memory that the plan points into until the image is out; memory of the
    // plan itself is copied. Throws ImageFault where the image is too large and OutboxFull where too much waits, and
    // then queues nothing.
    void send_image(uint32_t edge, const ImageSchema& schema, const ImagePlan& plan, std::shared_ptr<const void> keep,
                    int64_t value);

    void send_mark(uint8_t kind, uint32_t edge, int64_t value);

    // Pushes out what the kernel takes. 0, or the error number of a connection that has broken.
    int flush();

    enum class Reading : uint8_t { Open, Ended, Broken, Faulty };

    // Adds the frames that have come. A fault or end behind the last good frame is told by the next call, so that no
    // frame is lost.
    Reading receive(std::vector<Frame>& frames);

    bool waiting() const { return !outbox_.empty(); }
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
    Outgoing spare_;  // an empty one whose memory is used again
    std::vector<iovec> gathered_;
    int64_t blocked_since_ns_ = 0;
    SocketStatistics counts_;
};

}  // namespace penstock
