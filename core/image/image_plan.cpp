// Which bytes of a batch go into its image: one walk over the arrays, in the order of the schema's nodes.
#include <algorithm>
#include <limits>

#include "image/image_walk.hpp"

namespace penstock {

namespace {

using How = Piece::How;

struct Extent {
    int64_t low = std::numeric_limits<int64_t>::max();
    int64_t high = 0;

    void take(int64_t from, int64_t to) {
        low = std::min(low, from);
        high = std::max(high, to);
    }
    int64_t start() const { return high == 0 ? 0 : low; }
    int64_t size() const { return high == 0 ? 0 : high - low; }
};

// The part of an array that is shown, in the numbering of its buffers. `from` is a multiple of 8 where bits are copied.
struct Shown {
    int64_t from;
    int64_t count;
    int64_t hidden;  // values between `from` and the first that is shown

    int64_t first() const { return from + hidden; }
    int64_t total() const { return hidden + count; }
};

class Planner {
   public:
    Planner(const ImageSchema& schema, ImagePlan& plan) : schema_(schema), plan_(plan) {}

    void add(int32_t number, const ArrowArray& array, int64_t start, int64_t count) {
        const ImageNode& node = schema_.nodes[static_cast<size_t>(number)];
        require_shape(node, array);
        if (node.dictionary >= 0 && array.dictionary->length > dictionary_worth_keeping(count))
            return add_rows(schema_, number, array, start, count, plan_);
        const bool nulls = has_validity(node.shape) && array.null_count != 0 && array.buffers[0] != nullptr && count > 0;
        const int64_t first = count == 0 ? 0 : array.offset + start;  // an empty array may have no buffers to point into
        const int64_t hidden = nulls || node.shape == Shape::Bits ? first & 7 : 0;
        const Shown shown{first - hidden, count, hidden};
        const bool whole = start == 0 && count == array.length;
        const int64_t null_count = node.shape == Shape::Null ? count : !nulls ? 0 : whole ? array.null_count : -1;
        const size_t head = plan_.heads.size();
        plan_.heads.push_back({count, null_count, hidden, 0});
        if (has_validity(node.shape)) add_bits(nulls ? array.buffers[0] : nullptr, shown);
        add_own(node, array, shown, head);
        if (node.dictionary >= 0) add(node.dictionary, *array.dictionary, 0, array.dictionary->length);
    }

    void add_children(const ImageNode& node, const ArrowArray& array, int64_t start, int64_t count) {
        for (size_t c = 0; c < node.children.size(); c++) add(node.children[c], *array.children[c], start, count);
    }

   private:
    void add_own(const ImageNode& node, const ArrowArray& array, const Shown& shown, size_t head) {
        switch (node.shape) {
            case Shape::Null: return;
            case Shape::Bits: return add_bits(array.buffers[1], shown);
            case Shape::Fixed: return add_values(array.buffers[1], shown, node.width);
            case Shape::Bytes: return node.wide ? add_bytes<int64_t>(array, shown) : add_bytes<int32_t>(array, shown);
            case Shape::View: return add_views(array, shown, head);
            case Shape::List:
                return node.wide ? add_list<int64_t>(node, array, shown) : add_list<int32_t>(node, array, shown);
            case Shape::ListView:
                return node.wide ? add_list_view<int64_t>(node, array, shown) : add_list_view<int32_t>(node, array, shown);
            case Shape::FixedList:
                return add(node.children[0], *array.children[0], shown.from * node.width, shown.total() * node.width);
            case Shape::Struct: return add_children(node, array, shown.from, shown.total());
            case Shape::SparseUnion:
                add_values(array.buffers[0], shown, 1);
                return add_children(node, array, shown.from, shown.total());
            case Shape::DenseUnion: return add_dense_union(node, array, shown);
            case Shape::RunEnds: return add_run_ends(node, array, shown, head);
        }
    }

    void copy(const void* source, int64_t at, int64_t bytes) {
        plan_.pieces.push_back({.source = static_cast<const uint8_t*>(source) + (bytes > 0 ? at : 0),
                                .bytes = static_cast<size_t>(bytes)});
    }

    void add_bits(const void* bits, const Shown& shown) {
        copy(bits, shown.from / 8, bits == nullptr || shown.count == 0 ? 0 : (shown.total() + 7) / 8);
    }

    void add_values(const void* values, const Shown& shown, int64_t width) {
        copy(values, shown.from * width, shown.count == 0 ? 0 : shown.total() * width);
    }

    // Offsets of text and lists, and the stretch of values that they span. Hidden values are made empty, so that what lies
    // before the slice does not travel.
    template <class Offset>
    Extent add_offsets(const ArrowArray& array, const Shown& shown) {
        const auto* offsets = static_cast<const Offset*>(array.buffers[1]);
        constexpr auto how = sizeof(Offset) == 4 ? How::Rebase32 : How::Rebase64;
        if (shown.count == 0) {
            plan_.pieces.push_back({.how = how, .bytes = sizeof(Offset), .zeros = 1});
            return {0, 0};
        }
        const int64_t low = offsets[shown.first()];
        const int64_t high = offsets[shown.from + shown.total()];
        plan_.pieces.push_back({.how = low == 0 ? How::Copy : how,
                                .source = reinterpret_cast<const uint8_t*>(offsets + shown.from),
                                .bytes = static_cast<size_t>(shown.total() + 1) * sizeof(Offset),
                                .base = low,
                                .zeros = shown.hidden});
        return {low, high};
    }

    template <class Offset>
    void add_bytes(const ArrowArray& array, const Shown& shown) {
        const Extent spanned = add_offsets<Offset>(array, shown);
        copy(array.buffers[2], spanned.low, spanned.high - spanned.low);
    }

    template <class Offset>
    void add_list(const ImageNode& node, const ArrowArray& array, const Shown& shown) {
        const Extent spanned = add_offsets<Offset>(array, shown);
        add(node.children[0], *array.children[0], spanned.low, spanned.high - spanned.low);
    }

    template <class Offset>
    void add_list_view(const ImageNode& node, const ArrowArray& array, const Shown& shown) {
        const auto* offsets = static_cast<const Offset*>(array.buffers[1]);
        const auto* sizes = static_cast<const Offset*>(array.buffers[2]);
        Extent spanned;
        for (int64_t i = shown.first(); i < shown.from + shown.total(); i++)
            if (sizes[i] > 0) spanned.take(offsets[i], int64_t{offsets[i]} + sizes[i]);
        const size_t bytes = static_cast<size_t>(shown.count == 0 ? 0 : shown.total()) * sizeof(Offset);
        plan_.pieces.push_back({.how = sizeof(Offset) == 4 ? How::Positions32 : How::Positions64,
                                .source = reinterpret_cast<const uint8_t*>(offsets + shown.from),
                                .bytes = bytes,
                                .base = spanned.start(),
                                .zeros = shown.hidden,
                                .other = reinterpret_cast<const uint8_t*>(sizes + shown.from)});
        plan_.pieces.push_back({.how = How::ZeroFirst,
                                .source = reinterpret_cast<const uint8_t*>(sizes + shown.from),
                                .bytes = bytes,
                                .zeros = shown.hidden * static_cast<int64_t>(sizeof(Offset))});
        add(node.children[0], *array.children[0], spanned.start(), spanned.size());
    }

    // Each child is cut to what the rows point at.
    void add_dense_union(const ImageNode& node, const ArrowArray& array, const Shown& shown) {
        const auto* codes = static_cast<const int8_t*>(array.buffers[0]) + shown.from;
        const auto* offsets = static_cast<const int32_t*>(array.buffers[1]) + shown.from;
        std::vector<Extent> extents(node.children.size());
        for (int64_t i = 0; i < shown.count; i++) {
            const int8_t child = codes[i] < 0 ? int8_t{-1} : node.child_of[static_cast<size_t>(codes[i])];
            if (child < 0) throw ImageFault("column '" + node.path + "' has a row of a type that its union does not know");
            extents[static_cast<size_t>(child)].take(offsets[i], int64_t{offsets[i]} + 1);
        }
        add_values(array.buffers[0], shown, 1);
        const auto first = static_cast<int64_t>(plan_.bases.size());
        plan_.bases.resize(plan_.bases.size() + 128, 0);
        for (size_t code = 0; code < node.child_of.size(); code++)
            if (node.child_of[code] >= 0)
                plan_.bases[static_cast<size_t>(first) + code] = extents[static_cast<size_t>(node.child_of[code])].start();
        plan_.pieces.push_back({.how = How::DenseOffsets,
                                .source = reinterpret_cast<const uint8_t*>(offsets),
                                .bytes = static_cast<size_t>(shown.count) * sizeof(int32_t),
                                .base = first,
                                .other = reinterpret_cast<const uint8_t*>(codes)});
        for (size_t c = 0; c < extents.size(); c++)
            add(node.children[c], *array.children[c], extents[c].start(), extents[c].size());
    }

    // The data buffers of views are cut to what the rows point at; a buffer that none does is left empty.
    void add_views(const ArrowArray& array, const Shown& shown, size_t head) {
        const int64_t variadic = array.n_buffers - 3;
        plan_.heads[head].variadic = variadic;
        const uint8_t* validity = plan_.pieces.back().bytes > 0 ? plan_.pieces.back().source : nullptr;
        const auto* views = static_cast<const int32_t*>(array.buffers[1]) + shown.from * 4;
        std::vector<Extent> extents(static_cast<size_t>(variadic));
        for (int64_t i = shown.hidden; i < shown.total() && shown.count > 0; i++) {
            const int32_t* view = views + i * 4;
            if (view[0] <= 12 || (validity != nullptr && !((validity[i >> 3] >> (i & 7)) & 1))) continue;
            if (view[2] < 0 || view[2] >= variadic) throw ImageFault("a view points into a buffer that is not there");
            extents[static_cast<size_t>(view[2])].take(view[3], int64_t{view[3]} + view[0]);
        }
        const auto first = static_cast<int64_t>(plan_.bases.size());
        for (const Extent& extent : extents) plan_.bases.push_back(extent.start());
        plan_.pieces.push_back({.how = How::Views,
                                .source = reinterpret_cast<const uint8_t*>(views),
                                .bytes = static_cast<size_t>(shown.count == 0 ? 0 : shown.total() * 16),
                                .base = first,
                                .zeros = shown.hidden,
                                .other = validity});
        for (size_t b = 0; b < extents.size(); b++) copy(array.buffers[b + 2], extents[b].start(), extents[b].size());
    }

    // Runs before and after the slice stay away; those in it keep their ends, and the array its offset.
    void add_run_ends(const ImageNode& node, const ArrowArray& array, const Shown& shown, size_t head) {
        const ArrowArray& ends = *array.children[0];
        const int64_t width = schema_.nodes[static_cast<size_t>(node.children[0])].width;
        const int64_t first = shown.count == 0 ? 0 : runs_up_to(ends, width, shown.from);
        const int64_t runs = shown.count == 0 ? 0 : runs_up_to(ends, width, shown.from + shown.count - 1) + 1 - first;
        plan_.heads[head].offset = shown.from;
        add_children(node, array, first, runs);
    }

    const ImageSchema& schema_;
    ImagePlan& plan_;
};

}  // namespace

int64_t run_end(const ArrowArray& ends, int64_t width, int64_t run) {
    const auto* at = static_cast<const uint8_t*>(ends.buffers[1]) + (ends.offset + run) * width;
    switch (width) {
        case 2: return *reinterpret_cast<const int16_t*>(at);
        case 4: return *reinterpret_cast<const int32_t*>(at);
        default: return *reinterpret_cast<const int64_t*>(at);
    }
}

int64_t runs_up_to(const ArrowArray& ends, int64_t width, int64_t row) {
    int64_t low = 0, high = ends.length;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (run_end(ends, width, middle) <= row) low = middle + 1;
        else high = middle;
    }
    return low;
}

void plan_image(const ImageSchema& schema, const ArrowArray& batch, ImagePlan& plan) {
    plan.begin(schema, batch.length);
    const ImageNode& root = schema.nodes[0];
    if (batch.n_children != static_cast<int64_t>(root.children.size()))
        throw ImageFault("a batch of " + std::to_string(batch.n_children) + " columns is written under a schema of " +
                         std::to_string(root.children.size()));
    Planner(schema, plan).add_children(root, batch, batch.offset, batch.length);
    plan.measure();
}

void add_whole(const ImageSchema& schema, int32_t number, const ArrowArray& array, ImagePlan& plan) {
    Planner(schema, plan).add(number, array, 0, array.length);
}

void ImagePlan::begin(const ImageSchema& schema, int64_t count) {
    rows = count;
    heads.clear();
    pieces.clear();
    bases.clear();
    rows_below.clear();
    own.clear();
    heads.reserve(schema.nodes.size());
    pieces.reserve(3 * schema.nodes.size());
}

void ImagePlan::measure() {
    descriptor = aligned(sizeof(ImageHead) + heads.size() * sizeof(NodeHead) + pieces.size() * sizeof(uint64_t));
    bytes = descriptor;
    for (const Piece& piece : pieces) bytes += aligned(piece.bytes);
}

}  // namespace penstock
