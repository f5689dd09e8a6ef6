#include "kernels/rows/decimal_text.hpp"

#include <charconv>
#include <string>
#include <string_view>

namespace penstock {

namespace {

constexpr int DIGITS_MAX = 38;
constexpr int EXPONENT_MAX = 100'000;  // far beyond what fits; it keeps the arithmetic small

PyObject* decimal_type() {
    static PyObject* type = nullptr;  // never let go of: modules live as long as the process
    if (type != nullptr) return type;
    PyObject* module = PyImport_ImportModule("decimal");
    if (module != nullptr) type = PyObject_GetAttrString(module, "Decimal");
    Py_XDECREF(module);
    return type;
}

// [sign] digits [. digits] [E [sign] digits] as significant digits and a power of ten.
struct Number {
    bool negative = false;
    std::string digits;  // without zeros at either end
    int64_t exponent = 0;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool parse_exponent(std::string_view text, int64_t& exponent) {
    const bool negative = !text.empty() && text[0] == '-';
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    int64_t found = 0;
    for (const char c : text) {
        if (!is_digit(c) || found > EXPONENT_MAX) return false;
        found = found * 10 + (c - '0');
    }
    exponent += negative ? -found : found;
    return !text.empty();
}

bool parse(std::string_view text, Number& number) {
    number.negative = !text.empty() && text[0] == '-';
    if (number.negative) text.remove_prefix(1);
    const size_t e = text.find('E');
    if (e != std::string_view::npos && !parse_exponent(text.substr(e + 1), number.exponent)) return false;
    bool behind = false, any = false;
    for (const char c : text.substr(0, e)) {
        if (c == '.' && !behind) {
            behind = true;
            continue;
        }
        if (!is_digit(c)) return false;  // NaN, Infinity
        any = true;
        if (c != '0' || !number.digits.empty()) number.digits.push_back(c);
        number.exponent -= behind;
    }
    while (!number.digits.empty() && number.digits.back() == '0') {
        number.digits.pop_back();
        number.exponent++;
    }
    return any;
}

bool to_units(const Number& number, int digits, int scale, int128& units) {
    units = 0;
    if (number.digits.empty()) return true;
    const int64_t shift = number.exponent + scale;
    if (shift < 0 || shift > DIGITS_MAX || static_cast<int64_t>(number.digits.size()) + shift > digits) return false;
    for (const char c : number.digits) units = units * 10 + (c - '0');
    for (int64_t i = 0; i < shift; i++) units *= 10;
    if (number.negative) units = -units;
    return true;
}

}  // namespace

PyObject* decimal_object(int128 units, int scale) {
    PyObject* type = decimal_type();
    if (type == nullptr) return nullptr;
    char text[96];  // digits grow to the left from its middle, the exponent to the right
    char *at = text + 48, *end = at;
    if (scale != 0) {
        *end++ = 'E';
        end = std::to_chars(end, text + sizeof(text), -scale).ptr;
    }
    const bool negative = units < 0;
    if (negative) units = -units;  // 38 digits are far from the smallest number
    for (; units > INT64_MAX; units /= 10) *--at = static_cast<char>('0' + static_cast<int>(units % 10));
    auto rest = static_cast<int64_t>(units);  // most numbers are small, and dividing small ones is quick
    do *--at = static_cast<char>('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (negative) *--at = '-';
    PyObject* shown = PyUnicode_FromStringAndSize(at, end - at);
    if (shown == nullptr) return nullptr;
    PyObject* value = PyObject_CallOneArg(type, shown);
    Py_DECREF(shown);
    return value;
}

bool decimal_units(PyObject* value, int digits, int scale, int128& units) {
    PyObject* type = decimal_type();
    if (type == nullptr) return false;
    const bool whole = PyLong_Check(value) && !PyBool_Check(value);
    if (!whole && !PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(type))) return false;
    PyObject* shown = PyObject_Str(value);
    if (shown == nullptr) return false;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(shown, &size);
    Number number;
    const bool fits = text != nullptr && parse({text, static_cast<size_t>(size)}, number) &&
                      to_units(number, digits, scale, units);
    Py_DECREF(shown);
    return fits;
}

}  // namespace penstock
