// Named places at which a test build can kill its own process; nothing at all in other builds.
//
// Random kills do not find windows of a few instructions; a kill at each named point does. ring_reached is supplied by
// the test program.
#pragma once

#ifdef PENSTOCK_KILL_POINTS
namespace penstock::ring {
void ring_reached(const char* point);
}
#define RING_POINT(name) ::penstock::ring::ring_reached(name)
#else
#define RING_POINT(name) static_cast<void>(0)
#endif
