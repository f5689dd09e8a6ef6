#include "kernels/columns/values.hpp"

#include <limits>
#include <stdexcept>

namespace penstock {

void BytesOut::put(size_t i, std::string_view value, bool valid) {
    valid_[i] = valid;
    int64_t end = ends_.back();
    const bool fixed = type_.kind != Kind::Bytes;
    const size_t size = fixed ? static_cast<size_t>(type_.width) : valid ? value.size() : 0;
    bytes_.reserve(static_cast<size_t>(end) + size);
    if (valid && size > 0) std::memcpy(bytes_.data() + end, value.data(), size);
    if (!valid && size > 0) std::memset(bytes_.data() + end, 0, size);
    end += static_cast<int64_t>(size);
    if (!fixed && !type_.wide && end > std::numeric_limits<int32_t>::max())
        throw std::overflow_error("text is longer than 2 GiB in one batch");
    ends_.push_back(end);
}

ArrayOut BytesOut::done() {
    ArrayOut out;
    const auto count = static_cast<int64_t>(valid_.size());
    out.length = count;
    out.buffers.push_back(pack_validity(valid_.data(), count, out.null_count));
    if (type_.kind == Kind::Bytes) {
        Buffer offsets(ends_.size() * 8);
        if (type_.wide) {
            std::memcpy(offsets.data(), ends_.data(), ends_.size() * 8);
        } else {
            for (size_t i = 0; i < ends_.size(); i++) offsets.as<int32_t>()[i] = static_cast<int32_t>(ends_[i]);
        }
        out.buffers.push_back(std::move(offsets));
    }
    bytes_.reserve(1);
    out.buffers.push_back(std::move(bytes_));
    return out;
}

}  // namespace penstock
