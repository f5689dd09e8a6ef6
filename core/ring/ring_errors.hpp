// Errors of a ring: one class for each situation that a caller handles differently.
#pragma once

#include <stdexcept>
#include <string>

namespace penstock::ring {

// A segment, head or record is not what it should be.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// This process, epoch or version may not use the ring (again).
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The other end has died or closed.
struct Gone : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The machine has no room for a segment, or does not allow one.
struct NoMemory : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace penstock::ring
