// The Arrow C Data Interface: the two structs through which arrays pass between libraries without a copy. Their layout
// is the published ABI: the library that fills in a struct sets `release`, and the library that takes it over calls
// that once.
#pragma once

#include <cstdint>

extern "C" {

struct ArrowSchema {
    const char* format;
    const char* name;
    const char* metadata;
    int64_t flags;
    int64_t n_children;
    ArrowSchema** children;
    ArrowSchema* dictionary;
    void (*release)(ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void** buffers;
    ArrowArray** children;
    ArrowArray* dictionary;
    void (*release)(ArrowArray*);
    void* private_data;
};

}  // extern "C"

namespace penstock {

inline constexpr int64_t ARROW_NULLABLE = 2;  // ArrowSchema::flags

}  // namespace penstock
