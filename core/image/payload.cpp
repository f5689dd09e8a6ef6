#include "image/payload.hpp"

#include <algorithm>

#include "image/image_walk.hpp"

namespace penstock {

namespace {

constexpr int64_t VIEW_BYTES = 16, VIEW_SHORT_MAX = 12;

class Payload {
   public:
    explicit Payload(const ImageSchema& schema) : schema_(schema) {}

    // Of values from `start`, in the numbering in which the array's own first value is 0.
    int64_t of(int32_t number, const ArrowArray& array, int64_t start, int64_t count) const {
        const ImageNode& node = node_at(number);
        if (node.row_bytes >= 0) return count * node.row_bytes;
        require_shape(node, array);
        if (count == 0) return 0;
        const int64_t first = array.offset + start;
        switch (node.shape) {
            case Shape::Bytes: return node.wide ? bytes<int64_t>(array, first, count) : bytes<int32_t>(array, first, count);
            case Shape::View: return views(array, first, count);
            case Shape::List:
                return node.wide ? list<int64_t>(node, array, first, count) : list<int32_t>(node, array, first, count);
            case Shape::ListView:
                return node.wide ? list_view<int64_t>(node, array, first, count)
                                 : list_view<int32_t>(node, array, first, count);
            case Shape::FixedList: return of(node.children[0], *array.children[0], first * node.width, count * node.width);
            case Shape::SparseUnion: return count + children(node, array, first, count);
            case Shape::DenseUnion: return dense_union(node, array, first, count);
            case Shape::RunEnds: return runs(node, array, first, count);
            default: return children(node, array, first, count);
        }
    }

    int64_t children(const ImageNode& node, const ArrowArray& array, int64_t first, int64_t count) const {
        int64_t total = 0;
        for (size_t c = 0; c < node.children.size(); c++) total += of(node.children[c], *array.children[c], first, count);
        return total;
    }

    // Of chosen values; text has a loop of its own, because keys are often text.
    int64_t chosen(int32_t number, const ArrowArray& array, int64_t by, const uint32_t* rows, int64_t count) const {
        const ImageNode& node = node_at(number);
        if (node.row_bytes >= 0) return count * node.row_bytes;
        require_shape(node, array);
        if (node.shape == Shape::Bytes)
            return node.wide ? chosen_bytes<int64_t>(array, by, rows, count) : chosen_bytes<int32_t>(array, by, rows, count);
        int64_t total = 0;
        for (int64_t i = 0; i < count; i++) total += of(number, array, by + rows[i], 1);
        return total;
    }

   private:
    const ImageNode& node_at(int32_t number) const { return schema_.nodes[static_cast<size_t>(number)]; }

    template <class Offset>
    static const Offset* offsets_of(const ArrowArray& array, size_t buffer = 1) {
        return static_cast<const Offset*>(array.buffers[buffer]);
    }

    template <class Offset>
    static int64_t bytes(const ArrowArray& array, int64_t first, int64_t count) {
        const Offset* offsets = offsets_of<Offset>(array);
        return count * static_cast<int64_t>(sizeof(Offset)) + (offsets[first + count] - offsets[first]);
    }

    template <class Offset>
    static int64_t chosen_bytes(const ArrowArray& array, int64_t by, const uint32_t* rows, int64_t count) {
        if (count == 0) return 0;
        const Offset* offsets = offsets_of<Offset>(array) + array.offset + by;
        int64_t total = count * static_cast<int64_t>(sizeof(Offset));
        for (int64_t i = 0; i < count; i++) total += offsets[rows[i] + 1] - offsets[rows[i]];
        return total;
    }

    static int64_t views(const ArrowArray& array, int64_t first, int64_t count) {
        const auto* validity = array.null_count != 0 ? static_cast<const uint8_t*>(array.buffers[0]) : nullptr;
        const auto* lengths = static_cast<const int32_t*>(array.buffers[1]);  // the first of four words
        int64_t total = count * VIEW_BYTES;
        for (int64_t i = first; i < first + count; i++) {
            if (validity != nullptr && !((validity[i >> 3] >> (i & 7)) & 1)) continue;
            if (lengths[4 * i] > VIEW_SHORT_MAX) total += lengths[4 * i];
        }
        return total;
    }

    template <class Offset>
    int64_t list(const ImageNode& node, const ArrowArray& array, int64_t first, int64_t count) const {
        const Offset* offsets = offsets_of<Offset>(array);
        return count * static_cast<int64_t>(sizeof(Offset)) +
               of(node.children[0], *array.children[0], offsets[first], offsets[first + count] - offsets[first]);
    }

    template <class Offset>
    int64_t list_view(const ImageNode& node, const ArrowArray& array, int64_t first, int64_t count) const {
        const Offset *offsets = offsets_of<Offset>(array), *sizes = offsets_of<Offset>(array, 2);
        int64_t total = 2 * count * static_cast<int64_t>(sizeof(Offset));
        for (int64_t i = first; i < first + count; i++)
            total += of(node.children[0], *array.children[0], offsets[i], sizes[i]);
        return total;
    }

    int64_t dense_union(const ImageNode& node, const ArrowArray& array, int64_t first, int64_t count) const {
        const auto* codes = static_cast<const int8_t*>(array.buffers[0]);
        const auto* offsets = offsets_of<int32_t>(array);
        int64_t total = 5 * count;
        for (int64_t i = first; i < first + count; i++) {
            const int8_t child = codes[i] < 0 ? int8_t{-1} : node.child_of[static_cast<size_t>(codes[i])];
            if (child < 0) throw ImageFault("column '" + node.path + "' has a row of a type that its union does not know");
            const auto c = static_cast<size_t>(child);
            total += of(node.children[c], *array.children[c], offsets[i], 1);
        }
        return total;
    }

    int64_t runs(const ImageNode& node, const ArrowArray& array, int64_t first, int64_t count) const {
        const ArrowArray& ends = *array.children[0];
        const int64_t width = node_at(node.children[0]).width;
        int64_t total = 0, at = first;
        for (int64_t run = runs_up_to(ends, width, first); at < first + count; run++) {
            const int64_t until = std::min(run_end(ends, width, run), first + count);
            total += (until - at) * of(node.children[1], *array.children[1], run, 1);
            at = until;
        }
        return total;
    }

    const ImageSchema& schema_;
};

void require_columns(const ImageSchema& schema, const ArrowArray& batch) {
    if (batch.n_children != static_cast<int64_t>(schema.nodes[0].children.size()))
        throw ImageFault("a batch of " + std::to_string(batch.n_children) + " columns is metered under a schema of " +
                         std::to_string(schema.nodes[0].children.size()));
}

}  // namespace

int64_t fixed_payload(const ImageSchema& schema, const ImageNode& node) {
    const auto of_child = [&](size_t c) { return schema.nodes[static_cast<size_t>(node.children[c])].row_bytes; };
    int64_t sum = 0;
    bool fixed = true, alike = true;
    for (size_t c = 0; c < node.children.size(); c++) {
        fixed = fixed && of_child(c) >= 0;
        alike = alike && of_child(c) == of_child(0);
        sum += of_child(c);
    }
    switch (node.shape) {
        case Shape::Null: return 0;
        case Shape::Bits: return 1;
        case Shape::Fixed: return node.width;
        case Shape::FixedList: return fixed ? node.width * sum : -1;
        case Shape::Struct: return fixed ? sum : -1;
        case Shape::SparseUnion: return fixed ? 1 + sum : -1;
        case Shape::DenseUnion: return fixed && alike && !node.children.empty() ? 5 + of_child(0) : -1;
        case Shape::RunEnds: return of_child(1);
        default: return -1;
    }
}

int64_t payload_of(const ImageSchema& schema, const ArrowArray& batch) {
    const ImageNode& root = schema.nodes[0];
    if (root.row_bytes >= 0) return batch.length * root.row_bytes;
    require_columns(schema, batch);
    return Payload(schema).children(root, batch, batch.offset, batch.length);
}

int64_t payload_of(const ImageSchema& schema, const ArrowArray& batch, const uint32_t* rows, int64_t count) {
    const ImageNode& root = schema.nodes[0];
    if (root.row_bytes >= 0) return count * root.row_bytes;
    require_columns(schema, batch);
    const Payload payload(schema);
    int64_t total = 0;
    for (size_t c = 0; c < root.children.size(); c++)
        total += payload.chosen(root.children[c], *batch.children[c], batch.offset, rows, count);
    return total;
}

}  // namespace penstock
