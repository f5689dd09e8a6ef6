// Export with a release callback: each array owns its own buffers and children, as the interface demands, so that a
// consumer may move a child out and keep it for longer than its parent.
#include "kernels/columns/array_out.hpp"

namespace penstock {

namespace {

struct Exported {
    std::vector<Buffer> buffers;
    std::vector<const void*> pointers;
    std::vector<ArrowArray> children;
    std::vector<ArrowArray*> child_pointers;
    ArrowArray dictionary{};
    std::shared_ptr<const void> keep;
};

void release(ArrowArray* array) {
    auto* owned = static_cast<Exported*>(array->private_data);
    for (ArrowArray& child : owned->children)
        if (child.release != nullptr) child.release(&child);
    if (owned->dictionary.release != nullptr) owned->dictionary.release(&owned->dictionary);
    delete owned;
    array->release = nullptr;
}

// An array of another owner, handed out again: the same buffers, new structs, and a hold on the owner.
void export_shared(const ArrowArray& array, const std::shared_ptr<const void>& keep, ArrowArray* out) {
    auto owned = std::make_unique<Exported>();
    owned->keep = keep;
    owned->children.resize(static_cast<size_t>(array.n_children));
    for (size_t c = 0; c < owned->children.size(); c++) {
        export_shared(*array.children[c], keep, &owned->children[c]);
        owned->child_pointers.push_back(&owned->children[c]);
    }
    if (array.dictionary != nullptr) export_shared(*array.dictionary, keep, &owned->dictionary);
    *out = array;
    out->children = owned->child_pointers.data();
    out->dictionary = array.dictionary != nullptr ? &owned->dictionary : nullptr;
    out->release = release;
    out->private_data = owned.release();
}

}  // namespace

Buffer pack_validity(const uint8_t* valid, int64_t count, int64_t& null_count) {
    int64_t present = 0;
    for (int64_t i = 0; i < count; i++) present += valid[i];
    null_count = count - present;
    if (null_count == 0) return Buffer();
    Buffer bits(bit_bytes(count));
    std::memset(bits.data(), 0, bit_bytes(count));
    for (int64_t i = 0; i < count; i++)
        bits.data()[i >> 3] = static_cast<uint8_t>(bits.data()[i >> 3] | (valid[i] << (i & 7)));
    return bits;
}

void export_array(ArrayOut&& array, ArrowArray* out) {
    if (array.shared != nullptr) return export_shared(*array.shared, array.keep, out);
    auto owned = std::make_unique<Exported>();
    owned->buffers = std::move(array.buffers);
    for (const Buffer& buffer : owned->buffers) owned->pointers.push_back(buffer.data());
    owned->children.resize(array.children.size());
    for (size_t c = 0; c < array.children.size(); c++) {
        export_array(std::move(array.children[c]), &owned->children[c]);
        owned->child_pointers.push_back(&owned->children[c]);
    }
    if (array.shared_dictionary != nullptr) export_shared(*array.shared_dictionary, array.keep, &owned->dictionary);
    *out = ArrowArray{
        .length = array.length,
        .null_count = array.null_count,
        .offset = 0,
        .n_buffers = static_cast<int64_t>(owned->pointers.size()),
        .n_children = static_cast<int64_t>(owned->children.size()),
        .buffers = owned->pointers.data(),
        .children = owned->child_pointers.data(),
        .dictionary = array.shared_dictionary != nullptr ? &owned->dictionary : nullptr,
        .release = release,
        .private_data = owned.get(),
    };
    owned.release();  // the callback deletes it
}

void export_batch(int64_t rows, std::vector<ArrayOut>&& columns, ArrowArray* out) {
    ArrayOut batch;
    batch.length = rows;
    batch.buffers.resize(1);
    batch.children = std::move(columns);
    export_array(std::move(batch), out);
}

}  // namespace penstock
