#include "image/socket_channel.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace penstock {

namespace {

constexpr size_t GATHER_MAX = 256;             // parts in one system call; Linux takes 1,024
constexpr size_t COPY_BYTES_MAX = 1024;        // a buffer this small is copied beside the descriptor: cheaper than a part
constexpr size_t RECEIVE_BYTES_MAX = 1 << 20;  // in one call, so that one connection does not starve the others

alignas(64) constexpr uint8_t ZEROS[IMAGE_ALIGNMENT] = {};

int64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void add_part(Outgoing& frame, const uint8_t* data, size_t bytes) {
    if (bytes == 0) return;
    frame.left += bytes;
    if (!frame.parts.empty()) {
        iovec& last = frame.parts.back();
        if (static_cast<const uint8_t*>(last.iov_base) + last.iov_len == data) {
            last.iov_len += bytes;
            return;
        }
    }
    frame.parts.push_back({const_cast<uint8_t*>(data), bytes});
}

bool is_gathered(const Piece& piece) { return piece.how == Piece::How::Copy && piece.bytes > COPY_BYTES_MAX; }

// Two walks: `own` must not move while parts point into it.
void lay_out(Outgoing& frame, const ImageSchema& schema, const ImagePlan& plan, const FrameHead& head) {
    size_t own = sizeof(head) + plan.descriptor;
    for (const Piece& piece : plan.pieces)
        if (!is_gathered(piece)) own += aligned(piece.bytes);
    frame.own.reserve(own);
    uint8_t* at = frame.own.data();
    std::memcpy(at, &head, sizeof(head));
    write_descriptor(schema, plan, at + sizeof(head));
    add_part(frame, at, sizeof(head) + plan.descriptor);
    at += sizeof(head) + plan.descriptor;
    for (const Piece& piece : plan.pieces) {
        const size_t room = aligned(piece.bytes);
        if (is_gathered(piece)) {
            add_part(frame, piece.source, piece.bytes);
            add_part(frame, ZEROS, room - piece.bytes);
        } else {
            write_piece(plan, piece, at);
            std::memset(at + piece.bytes, 0, room - piece.bytes);
            add_part(frame, at, room);
            at += room;
        }
    }
}

}  // namespace

void Outgoing::let_go() {
    keep.reset();
    parts.clear();
    next = left = 0;
}

SocketChannel::SocketChannel(int descriptor, uint32_t edges, size_t waiting_max)
    : descriptor_(descriptor), waiting_max_(waiting_max), reader_(edges) {}

void SocketChannel::require_room(size_t bytes) const {
    if (counts_.bytes_waiting + bytes > waiting_max_)
        throw OutboxFull(std::to_string(counts_.bytes_waiting) + " bytes wait for a connection and " +
                         std::to_string(bytes) + " more do not fit its limit of " + std::to_string(waiting_max_));
}

void SocketChannel::send_image(uint32_t edge, const ImageSchema& schema, const ImagePlan& plan,
                               std::shared_ptr<const void> keep, int64_t value) {
    if (plan.bytes > BODY_BYTES_MAX)
        throw ImageFault("a batch of " + std::to_string(plan.rows) + " rows takes " + std::to_string(plan.bytes) +
                         " bytes; the limit is " + std::to_string(BODY_BYTES_MAX) + ": lower rows_max");
    require_room(sizeof(FrameHead) + plan.bytes);
    FrameHead head;
    head.length = static_cast<uint32_t>(plan.bytes);
    head.kind = FRAME_DATA;
    head.edge = edge;
    head.rows = static_cast<uint32_t>(plan.rows);
    head.value = value;
    head.sent_ns = wall_ns();
    Outgoing frame = std::move(spare_);
    lay_out(frame, schema, plan, head);
    frame.keep = std::move(keep);
    queue(std::move(frame));
}

void SocketChannel::send_mark(uint8_t kind, uint32_t edge, int64_t value) {
    require_room(sizeof(FrameHead));
    FrameHead head;
    head.kind = kind;
    head.edge = edge;
    head.value = value;
    Outgoing frame = std::move(spare_);
    frame.own.reserve(sizeof(head));
    std::memcpy(frame.own.data(), &head, sizeof(head));
    add_part(frame, frame.own.data(), sizeof(head));
    queue(std::move(frame));
}

void SocketChannel::queue(Outgoing&& frame) {
    counts_.bytes_waiting += frame.left;
    counts_.frames_sent++;
    outbox_.push_back(std::move(frame));
}

int SocketChannel::flush() {
    while (error_ == 0 && !outbox_.empty() && send_some()) {
    }
    return error_;
}

bool SocketChannel::send_some() {
    gathered_.clear();
    for (const Outgoing& frame : outbox_) {
        for (size_t p = frame.next; p < frame.parts.size() && gathered_.size() < GATHER_MAX; p++)
            gathered_.push_back(frame.parts[p]);
        if (gathered_.size() == GATHER_MAX) break;
    }
    msghdr message{};
    message.msg_iov = gathered_.data();
    message.msg_iovlen = gathered_.size();
    const ssize_t sent = ::sendmsg(descriptor_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
        unblock();
        advance(static_cast<size_t>(sent));
        return true;
    }
    if (errno == EINTR) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (blocked_since_ns_ == 0) blocked_since_ns_ = now_ns();
    } else {
        error_ = errno;
    }
    return false;
}

void SocketChannel::advance(size_t sent) {
    counts_.bytes_sent += sent;
    counts_.bytes_waiting -= sent;
    while (sent > 0) {
        Outgoing& frame = outbox_.front();
        iovec& part = frame.parts[frame.next];
        const size_t taken = std::min(sent, part.iov_len);
        part.iov_base = static_cast<uint8_t*>(part.iov_base) + taken;
        part.iov_len -= taken;
        frame.left -= taken;
        sent -= taken;
        if (part.iov_len == 0) frame.next++;
        if (frame.left > 0) continue;
        frame.let_go();
        spare_ = std::move(frame);
        outbox_.pop_front();
    }
}

void SocketChannel::unblock() {
    if (blocked_since_ns_ == 0) return;
    counts_.blocked_ns += now_ns() - blocked_since_ns_;
    blocked_since_ns_ = 0;
}

SocketChannel::Reading SocketChannel::receive(std::vector<Frame>& frames) {
    size_t taken = 0;
    while (state_ == Reading::Open && taken < RECEIVE_BYTES_MAX) {
        const FrameReader::Room room = reader_.room();
        const ssize_t got = ::recv(descriptor_, room.data, room.bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (got <= 0) {
            error_ = got < 0 ? errno : error_;
            state_ = got < 0 ? Reading::Broken : Reading::Ended;
            break;
        }
        const auto bytes = static_cast<size_t>(got);
        taken += bytes;
        counts_.bytes_received += bytes;
        if (!reader_.received(bytes, frames)) state_ = Reading::Faulty;
        // Less than there was room for means that there is no more, unless only a head was asked for.
        if (bytes < room.bytes) break;
    }
    return frames.empty() ? state_ : Reading::Open;
}

SocketStatistics SocketChannel::statistics() const {
    SocketStatistics counts = counts_;
    if (blocked_since_ns_ != 0) counts.blocked_ns += now_ns() - blocked_since_ns_;
    return counts;
}

}  // namespace penstock
