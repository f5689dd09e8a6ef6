// From bytes to a batch. Whatever the bytes are, nothing outside them is read, here or later through the batch's arrays
// (`test_a_mutated_image_is_a_fault_or_a_readable_batch`).
//
// One block of memory holds every struct of the tree. Its arrays share a count of references, because the interface lets
// a consumer move a child out and keep it for longer than its parent.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "image/image.hpp"

namespace penstock {

namespace {

constexpr int64_t LENGTH_MAX = int64_t{1} << 40;  // far from where products with widths overflow

struct Opened {
    std::atomic<int64_t> references;
    std::shared_ptr<const void> keep;
};

void let_go(ArrowArray* array) {
    for (int64_t c = 0; c < array->n_children; c++)
        if (array->children[c]->release != nullptr) array->children[c]->release(array->children[c]);
    ArrowArray* const dictionary = array->dictionary;
    if (dictionary != nullptr && dictionary->release != nullptr) dictionary->release(dictionary);
    auto* opened = static_cast<Opened*>(array->private_data);
    array->release = nullptr;
    if (opened->references.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    opened->~Opened();
    ::operator delete(opened);
}

template <class T>
bool increases(const T* values, int64_t steps) {
    int falls = 0;
    for (int64_t i = 0; i < steps; i++) falls |= values[i + 1] < values[i];
    return falls == 0;
}

bool bit(const uint8_t* bits, int64_t i) { return (bits[i >> 3] >> (i & 7)) & 1; }

// Whether all indices are below `limit`; as unsigned numbers, negative ones are not. Indices of nulls may be anything.
template <class T>
bool below(const T* values, const ArrowArray& array, int64_t limit) {
    const auto* validity = static_cast<const uint8_t*>(array.buffers[0]);
    T largest = 0;
    for (int64_t i = 0; i < array.length; i++) largest = std::max(largest, values[array.offset + i]);
    if (array.length == 0 || static_cast<uint64_t>(largest) < static_cast<uint64_t>(limit)) return true;
    if (validity == nullptr) return false;
    for (int64_t i = array.offset; i < array.offset + array.length; i++)
        if (bit(validity, i) && static_cast<uint64_t>(values[i]) >= static_cast<uint64_t>(limit)) return false;
    return true;
}

class Opener {
   public:
    Opener(const ImageSchema& schema, const uint8_t* image, size_t size) : schema_(schema), image_(image) {
        if (size < sizeof(ImageHead))
            throw ImageFault("an image of " + std::to_string(size) + " bytes has no room for its head");
        if (reinterpret_cast<uintptr_t>(image) % 8 != 0) throw ImageFault("an image does not begin at a multiple of 8");
        std::memcpy(&head_, image, sizeof(head_));
        if (head_.magic != IMAGE_MAGIC) throw ImageFault("bytes are no image of this version");
        if (head_.fingerprint != schema.fingerprint) throw ImageFault("an image of other types than those of its stream");
        if (head_.bytes > size)
            throw ImageFault("an image of " + std::to_string(head_.bytes) + " bytes came in " + std::to_string(size));
        require_length(head_.rows, "the batch");
        place_buffers();
    }

    void open(std::shared_ptr<const void> keep, ArrowArray* out) {
        const size_t nodes = schema_.nodes.size();
        size_t views = 0;
        for (const ImageNode& node : schema_.nodes) views += node.shape == Shape::View;
        const size_t pointers = 1 + head_.buffers + views + nodes;
        memory_ = static_cast<uint8_t*>(
            ::operator new(sizeof(Opened) + nodes * sizeof(ArrowArray) + pointers * sizeof(void*)));
        opened_ = new (memory_) Opened{static_cast<int64_t>(nodes), std::move(keep)};
        arrays_ = reinterpret_cast<ArrowArray*>(memory_ + sizeof(Opened));
        pointers_ = reinterpret_cast<void**>(arrays_ + nodes);
        try {
            fill(out);
        } catch (...) {
            *out = ArrowArray{};
            opened_->~Opened();
            ::operator delete(memory_);
            throw;
        }
    }

   private:
    struct Stretch {
        const uint8_t* data;
        uint64_t bytes;
    };

    // Each buffer's position follows from the lengths before it; together they must fill the image exactly.
    void place_buffers() {
        const uint64_t heads = (schema_.nodes.size() - 1) * sizeof(NodeHead);
        const uint64_t lengths = sizeof(ImageHead) + heads;
        const uint64_t descriptor = aligned(lengths + uint64_t{head_.buffers} * sizeof(uint64_t));
        if (descriptor > head_.bytes) throw ImageFault("an image's descriptor is longer than the image");
        lengths_ = reinterpret_cast<const uint64_t*>(image_ + lengths);
        uint64_t at = descriptor;
        stretches_.reserve(head_.buffers);
        for (uint32_t b = 0; b < head_.buffers; b++) {
            uint64_t bytes;
            std::memcpy(&bytes, lengths_ + b, sizeof(bytes));
            if (bytes > head_.bytes - at || aligned(bytes) > head_.bytes - at)
                throw ImageFault("buffer " + std::to_string(b) + " of " + std::to_string(bytes) +
                                 " bytes leaves its image");
            stretches_.push_back({image_ + at, bytes});
            at += aligned(bytes);
        }
        if (at != head_.bytes) throw ImageFault("an image holds bytes that belong to no buffer");
    }

    void fill(ArrowArray* out) {
        const ImageNode& root = schema_.nodes[0];
        *out = ArrowArray{};
        out->length = head_.rows;
        out->n_buffers = 1;
        out->buffers = const_cast<const void**>(pointers_);
        *pointers_++ = nullptr;
        adopt(out);
        fill_below(root, *out);
        for (size_t c = 0; c < root.children.size(); c++)
            require(out->children[c]->length >= head_.rows, schema_.nodes[static_cast<size_t>(root.children[c])],
                    "is shorter than its batch");
        if (next_ != stretches_.size()) throw ImageFault("an image has more buffers than its types");
    }

    void adopt(ArrowArray* array) {
        array->release = let_go;
        array->private_data = opened_;
    }

    void fill_below(const ImageNode& node, ArrowArray& array) {
        array.n_children = static_cast<int64_t>(node.children.size());
        array.children = reinterpret_cast<ArrowArray**>(pointers_);
        pointers_ += node.children.size();
        for (size_t c = 0; c < node.children.size(); c++) array.children[c] = open_node(node.children[c]);
        if (node.dictionary >= 0) array.dictionary = open_node(node.dictionary);
    }

    ArrowArray* open_node(int32_t number) {
        const ImageNode& node = schema_.nodes[static_cast<size_t>(number)];
        NodeHead head;
        std::memcpy(&head, image_ + sizeof(ImageHead) + static_cast<size_t>(number - 1) * sizeof(NodeHead), sizeof(head));
        require_length(head.length, node.path);
        require_length(head.offset, node.path);
        require(head.null_count >= -1 && head.null_count <= head.length, node, "has an impossible number of nulls");
        require(node.shape == Shape::View ? head.variadic >= 0 : head.variadic == 0, node, "has variadic buffers");
        ArrowArray* array = &arrays_[number];
        *array = ArrowArray{};
        array->length = head.length;
        array->null_count = head.null_count;
        array->offset = head.offset;
        adopt(array);
        fill_buffers(node, *array, head.variadic);
        fill_below(node, *array);
        check(node, *array);
        return array;
    }

    void fill_buffers(const ImageNode& node, ArrowArray& array, int64_t variadic) {
        const uint64_t count = static_cast<uint64_t>(node.buffers) + static_cast<uint64_t>(variadic);
        require(count <= stretches_.size() - next_, node, "has fewer buffers than its type");
        array.buffers = const_cast<const void**>(pointers_);
        array.n_buffers = static_cast<int64_t>(count);
        first_ = next_;
        for (uint64_t b = 0; b < count; b++) *pointers_++ = const_cast<uint8_t*>(stretches_[next_++].data);
        if (node.shape == Shape::View) {  // the interface wants the data buffers' lengths, which are in the descriptor
            *pointers_++ = const_cast<uint64_t*>(lengths_ + first_ + 2);
            array.n_buffers++;
        }
        check_extents(node, array);
    }

    void check_extents(const ImageNode& node, ArrowArray& array) {
        const int64_t end = array.offset + array.length;
        switch (node.shape) {
            case Shape::Null: array.null_count = array.length; return;
            case Shape::RunEnds: array.null_count = 0; return;
            case Shape::SparseUnion:
            case Shape::DenseUnion:
                array.null_count = 0;
                require_bytes(node, 0, end);
                if (node.shape == Shape::DenseUnion) require_bytes(node, 1, end * 4);
                return;
            default: break;
        }
        if (stretches_[first_].bytes == 0) {
            require(array.null_count <= 0, node, "counts nulls but has no bitmap of them");
            array.null_count = 0;
            array.buffers[0] = nullptr;
        } else {
            require_bytes(node, 0, (end + 7) / 8);
        }
        const int64_t offset_width = node.wide ? 8 : 4;
        switch (node.shape) {
            case Shape::Bits: return require_bytes(node, 1, (end + 7) / 8);
            case Shape::Fixed:
                require(node.width == 0 || end <= LENGTH_MAX / node.width * 64, node, "is too long");
                return require_bytes(node, 1, end * node.width);
            case Shape::View: return require_bytes(node, 1, end * 16);
            case Shape::Bytes:
            case Shape::List: return require_bytes(node, 1, (end + 1) * offset_width);
            case Shape::ListView:
                require_bytes(node, 1, end * offset_width);
                return require_bytes(node, 2, end * offset_width);
            default: return;
        }
    }

    // What the buffers say about each other, now that the children are known.
    void check(const ImageNode& node, const ArrowArray& array) const {
        const int64_t end = array.offset + array.length;
        switch (node.shape) {
            case Shape::Bytes: return check_offsets(node, array, static_cast<int64_t>(stretches_[first_ + 2].bytes));
            case Shape::List: return check_offsets(node, array, array.children[0]->length);
            case Shape::View: return check_views(node, array);
            case Shape::ListView:
                return node.wide ? check_list_view<int64_t>(node, array) : check_list_view<int32_t>(node, array);
            case Shape::FixedList:
                require(node.width == 0 || end <= array.children[0]->length / node.width, node, "has too few items");
                return;
            case Shape::Struct:
            case Shape::SparseUnion:
                for (int64_t c = 0; c < array.n_children; c++)
                    require(array.children[c]->length >= end, node, "is longer than one of its fields");
                return node.shape == Shape::Struct ? void() : check_codes(node, array);
            case Shape::DenseUnion: return check_dense(node, array);
            case Shape::RunEnds: return check_runs(node, array);
            case Shape::Fixed: return node.dictionary < 0 ? void() : check_indices(node, array);
            default: return;
        }
    }

    void check_offsets(const ImageNode& node, const ArrowArray& array, int64_t limit) const {
        const bool good = node.wide ? offsets_within<int64_t>(array, limit) : offsets_within<int32_t>(array, limit);
        require(good, node, "has offsets that fall or leave its values");
    }

    template <class Offset>
    static bool offsets_within(const ArrowArray& array, int64_t limit) {
        const auto* offsets = static_cast<const Offset*>(array.buffers[1]) + array.offset;
        return offsets[0] >= 0 && offsets[array.length] <= limit && increases(offsets, array.length);
    }

    void check_views(const ImageNode& node, const ArrowArray& array) const {
        const auto* views = static_cast<const int32_t*>(array.buffers[1]);
        const int64_t variadic = array.n_buffers - 3;
        const auto* sizes = static_cast<const int64_t*>(array.buffers[array.n_buffers - 1]);
        for (int64_t i = array.offset; i < array.offset + array.length; i++) {
            const int32_t* view = views + i * 4;
            const bool inside = view[0] <= 12 ? view[0] >= 0
                                              : view[2] >= 0 && view[2] < variadic && view[3] >= 0 &&
                                                    int64_t{view[3]} + view[0] <= sizes[view[2]];
            require(inside, node, "has a view that leaves its buffers");
        }
    }

    template <class Offset>
    void check_list_view(const ImageNode& node, const ArrowArray& array) const {
        const auto* offsets = static_cast<const Offset*>(array.buffers[1]);
        const auto* sizes = static_cast<const Offset*>(array.buffers[2]);
        const int64_t items = array.children[0]->length;
        for (int64_t i = array.offset; i < array.offset + array.length; i++)
            require(offsets[i] >= 0 && sizes[i] >= 0 && offsets[i] <= items && sizes[i] <= items - offsets[i], node,
                    "has a list that leaves its items");
    }

    int8_t child_at(const ImageNode& node, const ArrowArray& array, int64_t i) const {
        const int8_t code = static_cast<const int8_t*>(array.buffers[0])[i];
        const int8_t child = code < 0 ? int8_t{-1} : node.child_of[static_cast<size_t>(code)];
        require(child >= 0, node, "has a row of a type that its union does not know");
        return child;
    }

    void check_codes(const ImageNode& node, const ArrowArray& array) const {
        for (int64_t i = array.offset; i < array.offset + array.length; i++) child_at(node, array, i);
    }

    void check_dense(const ImageNode& node, const ArrowArray& array) const {
        const auto* offsets = static_cast<const int32_t*>(array.buffers[1]);
        for (int64_t i = array.offset; i < array.offset + array.length; i++) {
            const int8_t child = child_at(node, array, i);
            require(offsets[i] >= 0 && offsets[i] < array.children[child]->length, node, "points behind one of its fields");
        }
    }

    void check_runs(const ImageNode& node, const ArrowArray& array) const {
        switch (schema_.nodes[static_cast<size_t>(node.children[0])].width) {
            case 2: return check_run_ends<int16_t>(node, array);
            case 4: return check_run_ends<int32_t>(node, array);
            default: return check_run_ends<int64_t>(node, array);
        }
    }

    template <class End>
    void check_run_ends(const ImageNode& node, const ArrowArray& array) const {
        const ArrowArray& runs = *array.children[0];
        const auto* ends = static_cast<const End*>(runs.buffers[1]) + runs.offset;
        require(runs.null_count == 0 && runs.length <= array.children[1]->length, node, "has ends without values");
        int64_t before = 0;
        for (int64_t i = 0; i < runs.length; i++) {
            require(ends[i] > before, node, "has runs that do not go forward");
            before = ends[i];
        }
        require(array.length == 0 || before >= array.offset + array.length, node, "is longer than its runs");
    }

    void check_indices(const ImageNode& node, const ArrowArray& array) const {
        const int64_t limit = array.dictionary->length;
        const void* values = array.buffers[1];
        bool good = false;
        switch (node.width) {
            case 1: good = below(static_cast<const uint8_t*>(values), array, limit); break;
            case 2: good = below(static_cast<const uint16_t*>(values), array, limit); break;
            case 4: good = below(static_cast<const uint32_t*>(values), array, limit); break;
            default: good = below(static_cast<const uint64_t*>(values), array, limit);
        }
        require(good, node, "has an index that its dictionary does not have");
    }

    static void require(bool good, const ImageNode& node, const char* what) {
        if (!good) throw ImageFault("column '" + node.path + "' " + what);
    }

    static void require_length(int64_t length, const std::string& what) {
        if (length < 0 || length > LENGTH_MAX)
            throw ImageFault("'" + what + "' claims " + std::to_string(length) + " values or hides as many");
    }

    void require_bytes(const ImageNode& node, size_t buffer, int64_t bytes) const {
        require(stretches_[first_ + buffer].bytes >= static_cast<uint64_t>(bytes), node, "has a buffer that is too short");
    }

    const ImageSchema& schema_;
    const uint8_t* image_;
    ImageHead head_;
    const uint64_t* lengths_ = nullptr;
    std::vector<Stretch> stretches_;
    size_t next_ = 0;   // the buffer that the next array begins with
    size_t first_ = 0;  // the one that the current array began with
    uint8_t* memory_ = nullptr;
    Opened* opened_ = nullptr;
    ArrowArray* arrays_ = nullptr;
    void** pointers_ = nullptr;
};

}  // namespace

void open_image(const ImageSchema& schema, const uint8_t* image, size_t size, std::shared_ptr<const void> keep,
                ArrowArray* out) {
    Opener(schema, image, size).open(std::move(keep), out);
}

}  // namespace penstock
