// Which bytes of a batch go into the image of some of its rows. This walk collects row numbers of nested arrays and no
// values: values move once, when the image is written.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "image/image_walk.hpp"

namespace penstock {

namespace {

using How = Piece::How;

class RowPlanner {
   public:
    RowPlanner(const ImageSchema& schema, ImagePlan& plan) : schema_(schema), plan_(plan) {}

    void add(int32_t number, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        const ImageNode& node = schema_.nodes[static_cast<size_t>(number)];
        require_shape(node, array);
        if (array.offset + array.length > std::numeric_limits<uint32_t>::max())
            throw ImageFault("column '" + node.path + "' has more than 4 billion values");
        const bool nulls = has_validity(node.shape) && array.null_count != 0 && array.buffers[0] != nullptr && count > 0;
        plan_.heads.push_back({count, node.shape == Shape::Null ? count : nulls ? -1 : 0, 0, 0});
        if (has_validity(node.shape)) nulls ? add_bits(array, 0, rows, count) : plan_.pieces.push_back({});
        if (node.dictionary >= 0) return add_dictionary(node, array, rows, count);
        add_own(node, array, rows, count);
    }

    void add_children(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        rows = shifted(rows, count, array.offset);
        for (size_t c = 0; c < node.children.size(); c++) add(node.children[c], *array.children[c], rows, count);
    }

   private:
    void add_own(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        switch (node.shape) {
            case Shape::Null: return;
            case Shape::Bits: return add_bits(array, 1, rows, count);
            case Shape::Fixed: return add_values(array, 1, node.width, rows, count);
            case Shape::Bytes:
                return node.wide ? add_bytes<int64_t>(node, array, rows, count)
                                 : add_bytes<int32_t>(node, array, rows, count);
            case Shape::View: return add_views(array, rows, count);
            case Shape::List:
                return node.wide ? add_list<int64_t>(node, array, rows, count)
                                 : add_list<int32_t>(node, array, rows, count);
            case Shape::ListView:
                return node.wide ? add_list_view<int64_t>(node, array, rows, count)
                                 : add_list_view<int32_t>(node, array, rows, count);
            case Shape::FixedList: return add_fixed_list(node, array, rows, count);
            case Shape::Struct: return add_children(node, array, rows, count);
            case Shape::SparseUnion:
                add_values(array, 0, 1, rows, count);
                return add_children(node, array, rows, count);
            case Shape::DenseUnion: return add_dense_union(node, array, rows, count);
            case Shape::RunEnds: return add_run_ends(node, array, rows, count);
        }
    }

    const uint32_t* shifted(const uint32_t* rows, int64_t count, int64_t by) {
        if (by == 0) return rows;
        std::vector<uint32_t>& moved = plan_.rows_below.emplace_front(rows, rows + count);
        for (uint32_t& row : moved) row += static_cast<uint32_t>(by);
        return moved.data();
    }

    void add_bits(const ArrowArray& array, size_t buffer, const uint32_t* rows, int64_t count) {
        plan_.pieces.push_back({.how = How::GatherBits,
                                .source = static_cast<const uint8_t*>(array.buffers[buffer]),
                                .bytes = static_cast<size_t>((count + 7) / 8),
                                .base = array.offset,
                                .rows = rows,
                                .count = count});
    }

    void add_values(const ArrowArray& array, size_t buffer, int64_t width, const uint32_t* rows, int64_t count) {
        const auto* values = static_cast<const uint8_t*>(array.buffers[buffer]);
        plan_.pieces.push_back({.how = How::GatherFixed,
                                .source = count == 0 ? nullptr : values + array.offset * width,
                                .bytes = static_cast<size_t>(count * width),
                                .base = width,
                                .rows = rows,
                                .count = count});
    }

    template <class T>
    T* make(int64_t count) {
        std::vector<uint8_t>& made = plan_.own.emplace_front(static_cast<size_t>(count) * sizeof(T));
        plan_.pieces.push_back({.how = How::CopyOwn, .source = made.data(), .bytes = made.size()});
        return reinterpret_cast<T*>(made.data());
    }

    // New offsets, and how many values they span.
    template <class Offset>
    int64_t add_offsets(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        const Offset* offsets = count == 0 ? nullptr : static_cast<const Offset*>(array.buffers[1]) + array.offset;
        int64_t total = 0;
        for (int64_t i = 0; i < count; i++) total += offsets[rows[i] + 1] - offsets[rows[i]];
        if (total > std::numeric_limits<Offset>::max())
            throw ImageFault("column '" + node.path + "' is longer than its offsets can say");
        plan_.pieces.push_back({.how = sizeof(Offset) == 4 ? How::GatherOffsets32 : How::GatherOffsets64,
                                .source = reinterpret_cast<const uint8_t*>(offsets),
                                .bytes = static_cast<size_t>(count + 1) * sizeof(Offset),
                                .rows = rows,
                                .count = count});
        return total;
    }

    template <class Offset>
    void add_bytes(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        const int64_t total = add_offsets<Offset>(node, array, rows, count);
        const Offset* offsets = count == 0 ? nullptr : static_cast<const Offset*>(array.buffers[1]) + array.offset;
        plan_.pieces.push_back({.how = sizeof(Offset) == 4 ? How::GatherBytes32 : How::GatherBytes64,
                                .source = reinterpret_cast<const uint8_t*>(offsets),
                                .bytes = static_cast<size_t>(total),
                                .base = count == 0 ? 0 : static_cast<int64_t>(offsets[array.length]),
                                .other = static_cast<const uint8_t*>(array.buffers[2]),
                                .rows = rows,
                                .count = count});
    }

    std::vector<uint32_t>& items(int64_t count) {
        std::vector<uint32_t>& taken = plan_.rows_below.emplace_front();
        taken.reserve(static_cast<size_t>(count));
        return taken;
    }

    template <class Offset>
    void add_list(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        const int64_t total = add_offsets<Offset>(node, array, rows, count);
        const Offset* offsets = count == 0 ? nullptr : static_cast<const Offset*>(array.buffers[1]) + array.offset;
        std::vector<uint32_t>& taken = items(total);
        for (int64_t i = 0; i < count; i++)
            for (Offset item = offsets[rows[i]]; item < offsets[rows[i] + 1]; item++)
                taken.push_back(static_cast<uint32_t>(item));
        add(node.children[0], *array.children[0], taken.data(), total);
    }

    template <class Offset>
    void add_list_view(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        const auto* offsets = count == 0 ? nullptr : static_cast<const Offset*>(array.buffers[1]) + array.offset;
        const auto* sizes = count == 0 ? nullptr : static_cast<const Offset*>(array.buffers[2]) + array.offset;
        auto* positions = make<Offset>(count);
        std::vector<uint32_t>& taken = items(count);
        for (int64_t i = 0; i < count; i++) {
            if (taken.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
                throw ImageFault("column '" + node.path + "' is longer than its offsets can say");
            positions[i] = static_cast<Offset>(taken.size());
            for (Offset k = 0; k < sizes[rows[i]]; k++) taken.push_back(static_cast<uint32_t>(offsets[rows[i]] + k));
        }
        add_values(array, 2, sizeof(Offset), rows, count);
        add(node.children[0], *array.children[0], taken.data(), static_cast<int64_t>(taken.size()));
    }

    void add_fixed_list(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        std::vector<uint32_t>& taken = items(count * node.width);
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < node.width; k++)
                taken.push_back(static_cast<uint32_t>((array.offset + rows[i]) * node.width + k));
        add(node.children[0], *array.children[0], taken.data(), static_cast<int64_t>(taken.size()));
    }

    void add_dense_union(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        const auto* codes = count == 0 ? nullptr : static_cast<const int8_t*>(array.buffers[0]) + array.offset;
        const auto* offsets = count == 0 ? nullptr : static_cast<const int32_t*>(array.buffers[1]) + array.offset;
        add_values(array, 0, 1, rows, count);
        auto* positions = make<int32_t>(count);
        std::vector<std::vector<uint32_t>*> taken;
        for (size_t c = 0; c < node.children.size(); c++) taken.push_back(&plan_.rows_below.emplace_front());
        for (int64_t i = 0; i < count; i++) {
            const int8_t code = codes[rows[i]];
            const int8_t child = code < 0 ? int8_t{-1} : node.child_of[static_cast<size_t>(code)];
            if (child < 0) throw ImageFault("column '" + node.path + "' has a row of a type that its union does not know");
            positions[i] = static_cast<int32_t>(taken[static_cast<size_t>(child)]->size());
            taken[static_cast<size_t>(child)]->push_back(static_cast<uint32_t>(offsets[rows[i]]));
        }
        for (size_t c = 0; c < node.children.size(); c++)
            add(node.children[c], *array.children[c], taken[c]->data(), static_cast<int64_t>(taken[c]->size()));
    }

    // Bytes that views point at are put one behind the other into a single buffer.
    void add_views(const ArrowArray& array, const uint32_t* rows, int64_t count) {
        plan_.heads.back().variadic = 1;
        const auto* validity = array.null_count != 0 ? static_cast<const uint8_t*>(array.buffers[0]) : nullptr;
        auto* views = make<int32_t>(count * 4);
        std::vector<uint8_t> data;
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = array.offset + rows[i];
            if (validity != nullptr && !((validity[at >> 3] >> (at & 7)) & 1)) continue;
            int32_t* view = views + i * 4;
            std::memcpy(view, static_cast<const uint8_t*>(array.buffers[1]) + at * 16, 16);
            if (view[0] <= 12) continue;
            if (view[2] < 0 || view[2] >= array.n_buffers - 3)
                throw ImageFault("a view points into a buffer that is not there");
            const auto* from = static_cast<const uint8_t*>(array.buffers[view[2] + 2]) + view[3];
            if (data.size() + static_cast<size_t>(view[0]) > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
                throw ImageFault("the views of a batch show more than 2 GiB");
            view[2] = 0;
            view[3] = static_cast<int32_t>(data.size());
            data.insert(data.end(), from, from + view[0]);
        }
        auto* shown = make<uint8_t>(static_cast<int64_t>(data.size()));
        if (!data.empty()) std::memcpy(shown, data.data(), data.size());
    }

    // Neighbours that come from the same run stay one.
    void add_run_ends(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        const int64_t width = schema_.nodes[static_cast<size_t>(node.children[0])].width;
        const ArrowArray& ends = *array.children[0];
        std::vector<uint32_t>& runs = plan_.rows_below.emplace_front();
        std::vector<int64_t> until;
        for (int64_t i = 0; i < count; i++) {
            const auto run = static_cast<uint32_t>(runs_up_to(ends, width, array.offset + rows[i]));
            if (runs.empty() || runs.back() != run) {
                runs.push_back(run);
                until.push_back(0);
            }
            until.back() = i + 1;
        }
        const auto found = static_cast<int64_t>(runs.size());
        plan_.heads.push_back({found, 0, 0, 0});
        plan_.pieces.push_back({});
        auto* to = make<uint8_t>(found * width);
        const auto bytes = static_cast<size_t>(width);
        for (size_t r = 0; r < runs.size(); r++) std::memcpy(to + r * bytes, &until[r], bytes);
        add(node.children[1], *array.children[1], runs.data(), found);
    }

    void add_dictionary(const ImageNode& node, const ArrowArray& array, const uint32_t* rows, int64_t count) {
        if (array.dictionary->length <= dictionary_worth_keeping(count)) {
            add_values(array, 1, node.width, rows, count);
            return add_whole(schema_, node.dictionary, *array.dictionary, plan_);
        }
        std::vector<uint32_t>& used = plan_.rows_below.emplace_front();
        const std::vector<uint32_t> indices = indices_of(node, array, rows, count);
        for (const uint32_t index : indices)
            if (index != ABSENT) used.push_back(index);
        std::sort(used.begin(), used.end());
        used.erase(std::unique(used.begin(), used.end()), used.end());
        auto* to = make<uint8_t>(count * node.width);
        for (int64_t i = 0; i < count; i++) {
            const uint32_t index = indices[static_cast<size_t>(i)];
            const auto at = index == ABSENT ? 0 : std::lower_bound(used.begin(), used.end(), index) - used.begin();
            std::memcpy(to + i * node.width, &at, static_cast<size_t>(node.width));  // the lower bytes of a small number
        }
        add(node.dictionary, *array.dictionary, used.data(), static_cast<int64_t>(used.size()));
    }

    static constexpr uint32_t ABSENT = std::numeric_limits<uint32_t>::max();

    static std::vector<uint32_t> indices_of(const ImageNode& node, const ArrowArray& array, const uint32_t* rows,
                                            int64_t count) {
        const auto* validity = array.null_count != 0 ? static_cast<const uint8_t*>(array.buffers[0]) : nullptr;
        std::vector<uint32_t> indices(static_cast<size_t>(count), ABSENT);
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = array.offset + rows[i];
            if (validity != nullptr && !((validity[at >> 3] >> (at & 7)) & 1)) continue;
            uint64_t index = 0;
            const auto width = static_cast<size_t>(node.width);
            std::memcpy(&index, static_cast<const uint8_t*>(array.buffers[1]) + at * node.width, width);
            if (index >= static_cast<uint64_t>(array.dictionary->length))
                throw ImageFault("column '" + node.path + "' has an index that its dictionary does not have");
            indices[static_cast<size_t>(i)] = static_cast<uint32_t>(index);
        }
        return indices;
    }

    const ImageSchema& schema_;
    ImagePlan& plan_;
};

}  // namespace

void plan_rows(const ImageSchema& schema, const ArrowArray& batch, const uint32_t* rows, int64_t count, ImagePlan& plan) {
    plan.begin(schema, count);
    const ImageNode& root = schema.nodes[0];
    if (batch.n_children != static_cast<int64_t>(root.children.size()))
        throw ImageFault("a batch of " + std::to_string(batch.n_children) + " columns is written under a schema of " +
                         std::to_string(root.children.size()));
    RowPlanner(schema, plan).add_children(root, batch, rows, count);
    plan.measure();
}

void add_rows(const ImageSchema& schema, int32_t number, const ArrowArray& array, int64_t start, int64_t count,
              ImagePlan& plan) {
    std::vector<uint32_t>& rows = plan.rows_below.emplace_front(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), static_cast<uint32_t>(start));
    RowPlanner(schema, plan).add(number, array, rows.data(), count);
}

}  // namespace penstock
