// From a plan to bytes. Every piece is written once, to where it stays.
#include <cstring>

#include "image/image.hpp"
#include "kernels/columns/take.hpp"

namespace penstock {

namespace {

template <class Offset>
void rebase(const Piece& piece, uint8_t* to) {
    auto* out = reinterpret_cast<Offset*>(to);
    const auto* in = reinterpret_cast<const Offset*>(piece.source);
    const auto count = static_cast<int64_t>(piece.bytes / sizeof(Offset));
    const auto base = static_cast<Offset>(piece.base);
    for (int64_t i = 0; i < piece.zeros; i++) out[i] = 0;
    for (int64_t i = piece.zeros; i < count; i++) out[i] = static_cast<Offset>(in[i] - base);
}

template <class Offset>
void write_positions(const Piece& piece, uint8_t* to) {
    auto* out = reinterpret_cast<Offset*>(to);
    const auto* in = reinterpret_cast<const Offset*>(piece.source);
    const auto* sizes = reinterpret_cast<const Offset*>(piece.other);
    const auto count = static_cast<int64_t>(piece.bytes / sizeof(Offset));
    for (int64_t i = 0; i < count; i++)
        out[i] = i < piece.zeros || sizes[i] == 0 ? Offset{0} : static_cast<Offset>(in[i] - piece.base);
}

void write_dense_offsets(const ImagePlan& plan, const Piece& piece, uint8_t* to) {
    auto* out = reinterpret_cast<int32_t*>(to);
    const auto* in = reinterpret_cast<const int32_t*>(piece.source);
    const int64_t* bases = plan.bases.data() + piece.base;
    const auto count = static_cast<int64_t>(piece.bytes / sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) out[i] = static_cast<int32_t>(in[i] - bases[piece.other[i] & 127]);
}

void write_views(const ImagePlan& plan, const Piece& piece, uint8_t* to) {
    const int64_t* bases = plan.bases.data() + piece.base;
    const auto count = static_cast<int64_t>(piece.bytes / 16);
    for (int64_t i = 0; i < count; i++) {
        const bool null = piece.other != nullptr && !((piece.other[i >> 3] >> (i & 7)) & 1);
        if (i < piece.zeros || null) {
            std::memset(to + i * 16, 0, 16);
            continue;
        }
        int32_t view[4];
        std::memcpy(view, piece.source + i * 16, 16);
        if (view[0] > 12) view[3] = static_cast<int32_t>(view[3] - bases[view[2]]);
        std::memcpy(to + i * 16, view, 16);
    }
}

void gather_bits(const Piece& piece, uint8_t* to) {
    std::memset(to, 0, piece.bytes);
    for (int64_t i = 0; i < piece.count; i++) {
        const int64_t at = piece.base + piece.rows[i];
        const int bit = (piece.source[at >> 3] >> (at & 7)) & 1;
        to[i >> 3] = static_cast<uint8_t>(to[i >> 3] | (bit << (i & 7)));
    }
}

template <size_t Width>
void gather_fixed(const Piece& piece, uint8_t* to) {
    for (int64_t i = 0; i < piece.count; i++)
        std::memcpy(to + static_cast<size_t>(i) * Width, piece.source + piece.rows[i] * Width, Width);
}

void gather_any(const Piece& piece, uint8_t* to) {
    const auto width = static_cast<size_t>(piece.base);
    for (int64_t i = 0; i < piece.count; i++)
        std::memcpy(to + static_cast<size_t>(i) * width, piece.source + piece.rows[i] * width, width);
}

void gather_values(const Piece& piece, uint8_t* to) {
    switch (piece.base) {
        case 1: return gather_fixed<1>(piece, to);
        case 2: return gather_fixed<2>(piece, to);
        case 4: return gather_fixed<4>(piece, to);
        case 8: return gather_fixed<8>(piece, to);
        case 16: return gather_fixed<16>(piece, to);
        default: return gather_any(piece, to);
    }
}

template <class Offset>
void gather_offsets(const Piece& piece, uint8_t* to) {
    auto* out = reinterpret_cast<Offset*>(to);
    const auto* in = reinterpret_cast<const Offset*>(piece.source);
    Offset total = 0;
    out[0] = 0;
    for (int64_t i = 0; i < piece.count; i++) {
        total = static_cast<Offset>(total + in[piece.rows[i] + 1] - in[piece.rows[i]]);
        out[i + 1] = total;
    }
}

template <class Offset>
void gather_bytes(const Piece& piece, uint8_t* to) {
    const auto* offsets = reinterpret_cast<const Offset*>(piece.source);
    const uint8_t* end = to + piece.bytes;
    for (int64_t i = 0; i < piece.count; i++) {
        const int64_t from = offsets[piece.rows[i]];
        const auto size = static_cast<size_t>(offsets[piece.rows[i] + 1] - from);
        copy_short(to, piece.other + from, size, from + 16 <= piece.base && end - to >= 16);
        to += size;
    }
}

}  // namespace

void write_piece(const ImagePlan& plan, const Piece& piece, uint8_t* to) {
    if (piece.bytes == 0) return;
    switch (piece.how) {
        case Piece::How::Copy:
        case Piece::How::CopyOwn: std::memcpy(to, piece.source, piece.bytes); return;
        case Piece::How::ZeroFirst:
            std::memset(to, 0, static_cast<size_t>(piece.zeros));
            std::memcpy(to + piece.zeros, piece.source + piece.zeros, piece.bytes - static_cast<size_t>(piece.zeros));
            return;
        case Piece::How::Rebase32: return rebase<int32_t>(piece, to);
        case Piece::How::Rebase64: return rebase<int64_t>(piece, to);
        case Piece::How::Positions32: return write_positions<int32_t>(piece, to);
        case Piece::How::Positions64: return write_positions<int64_t>(piece, to);
        case Piece::How::DenseOffsets: return write_dense_offsets(plan, piece, to);
        case Piece::How::Views: return write_views(plan, piece, to);
        case Piece::How::GatherBits: return gather_bits(piece, to);
        case Piece::How::GatherFixed: return gather_values(piece, to);
        case Piece::How::GatherOffsets32: return gather_offsets<int32_t>(piece, to);
        case Piece::How::GatherOffsets64: return gather_offsets<int64_t>(piece, to);
        case Piece::How::GatherBytes32: return gather_bytes<int32_t>(piece, to);
        case Piece::How::GatherBytes64: return gather_bytes<int64_t>(piece, to);
    }
}

void write_descriptor(const ImageSchema& schema, const ImagePlan& plan, uint8_t* to) {
    ImageHead head;
    head.magic = IMAGE_MAGIC;
    head.buffers = static_cast<uint32_t>(plan.pieces.size());
    head.fingerprint = schema.fingerprint;
    head.rows = plan.rows;
    head.bytes = plan.bytes;
    std::memcpy(to, &head, sizeof(head));
    size_t at = sizeof(head);
    const size_t heads = plan.heads.size() * sizeof(NodeHead);
    if (heads > 0) std::memcpy(to + at, plan.heads.data(), heads);
    at += heads;
    for (const Piece& piece : plan.pieces) {
        const uint64_t length = piece.bytes;
        std::memcpy(to + at, &length, sizeof(length));
        at += sizeof(length);
    }
    std::memset(to + at, 0, plan.descriptor - at);
}

void write_image(const ImageSchema& schema, const ImagePlan& plan, uint8_t* to) {
    write_descriptor(schema, plan, to);
    uint8_t* at = to + plan.descriptor;
    for (const Piece& piece : plan.pieces) {
        write_piece(plan, piece, at);
        const size_t room = aligned(piece.bytes);
        std::memset(at + piece.bytes, 0, room - piece.bytes);
        at += room;
    }
}

}  // namespace penstock
