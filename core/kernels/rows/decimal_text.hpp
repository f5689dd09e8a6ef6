// Python's Decimal from and to a number of units, by way of its text: the decimal module has no C interface.
#pragma once

#include <Python.h>

#include "kernels/columns/values.hpp"

namespace penstock {

// units / 10^scale with exactly `scale` digits behind the point; a new reference, or nullptr with an exception set.
PyObject* decimal_object(int128 units, int scale);

// The units of a Decimal or an int in a column of `digits` digits. False where the value is neither, is not finite, or
// does not fit without rounding; with or without an exception that says why.
bool decimal_units(PyObject* value, int digits, int scale, int128& units);

}  // namespace penstock
