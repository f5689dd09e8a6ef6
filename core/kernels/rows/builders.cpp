#include <Python.h>
#include <datetime.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/rows/builders.hpp"
#include "kernels/rows/decimal_text.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

constexpr int64_t DAY_US = 86'400'000'000;

// Days since 1970, the inverse of counting in eras of 400 years that begin on 1 March.
int64_t days_since_epoch(int year, int month, int day) {
    const int64_t shifted = month <= 2 ? year - 1 : year;
    const int64_t era = shifted / 400;  // years are positive
    const int64_t year_of_era = shifted - era * 400;
    const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

bool is_numpy_bool(PyObject* value) { return std::strncmp(Py_TYPE(value)->tp_name, "numpy.bool", 10) == 0; }

// Whether the value is a whole number. Python's bool is an int, but is refused: it is rarely meant as one.
bool to_int(PyObject* value, int64_t& out) {
    if (PyBool_Check(value) || is_numpy_bool(value) || !PyIndex_Check(value)) return false;
    int overflow = 0;
    if (PyLong_Check(value)) {
        out = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow == 0;
    }
    PyObject* number = PyNumber_Index(value);
    if (number == nullptr) return false;
    out = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    return overflow == 0 && !PyErr_Occurred();
}

bool to_uint(PyObject* value, uint64_t& out) {
    if (PyBool_Check(value) || is_numpy_bool(value) || !PyIndex_Check(value)) return false;
    PyObject* number = PyNumber_Index(value);
    if (number == nullptr) return false;
    out = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return !PyErr_Occurred();
}

bool to_real(PyObject* value, double& out) {
    if (PyFloat_Check(value)) {
        out = PyFloat_AS_DOUBLE(value);
        return true;
    }
    const PyNumberMethods* number = Py_TYPE(value)->tp_as_number;
    const bool is_number = number != nullptr && (number->nb_float != nullptr || number->nb_index != nullptr);
    if (!is_number || PyBool_Check(value) || is_numpy_bool(value)) return false;
    out = PyFloat_AsDouble(value);
    return !PyErr_Occurred();
}

bool to_date(PyObject* value, int64_t& out) {
    if (!PyDate_Check(value) || PyDateTime_Check(value)) return false;
    out = days_since_epoch(PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value), PyDateTime_GET_DAY(value));
    return true;
}

// How far a zone is ahead of UTC, in microseconds.
bool zone_offset(PyObject* value, int64_t& out) {
    out = 0;
    PyObject* zone = PyDateTime_DATE_GET_TZINFO(value);
    if (zone == Py_None || zone == PyDateTime_TimeZone_UTC) return true;
    PyObject* delta = PyObject_CallMethod(value, "utcoffset", nullptr);
    if (delta == nullptr) return false;
    if (delta != Py_None) {
        out = PyDateTime_DELTA_GET_DAYS(delta) * DAY_US + PyDateTime_DELTA_GET_SECONDS(delta) * int64_t{1'000'000} +
              PyDateTime_DELTA_GET_MICROSECONDS(delta);
    }
    Py_DECREF(delta);
    return true;
}

// A time without a zone is taken as UTC, as pyarrow takes it.
bool to_timestamp(PyObject* value, int64_t& out) {
    int64_t ahead = 0;
    if (!PyDateTime_Check(value) || !zone_offset(value, ahead)) return false;
    const int64_t day =
        days_since_epoch(PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value), PyDateTime_GET_DAY(value));
    const int64_t second = PyDateTime_DATE_GET_HOUR(value) * 3600 + PyDateTime_DATE_GET_MINUTE(value) * 60 +
                           PyDateTime_DATE_GET_SECOND(value);
    out = day * DAY_US + second * 1'000'000 + PyDateTime_DATE_GET_MICROSECOND(value) - ahead;
    return true;
}

class FixedBuilder : public WithValidity {
   public:
    using WithValidity::WithValidity;

    void truncate(int64_t length) override { length_ = length; }

    ArrayOut done() override {
        ArrayOut out;
        out.buffers.push_back(validity(out));
        bytes_.reserve(1);
        if (type_.kind == Kind::Bool) {
            Buffer bits(bit_bytes(length_));
            for (int64_t i = 0; i < length_; i++) set_bit(bits.data(), i, bytes_.data()[i] != 0);
            bytes_ = std::move(bits);
        }
        out.buffers.push_back(std::move(bytes_));
        return out;
    }

   protected:
    void append_null() override { store(int128{0}, false); }

    bool append_value(PyObject* value) override {
        switch (type_.kind) {
            case Kind::Bool: return append_bool(value);
            case Kind::Float: return append_real(value);
            case Kind::UInt: {
                uint64_t number = 0;
                const int bits = 8 * type_.width;
                if (!to_uint(value, number) || (bits < 64 && number >> bits != 0)) return false;
                store(number, true);
                return true;
            }
            case Kind::Decimal: {
                int128 units = 0;
                if (!decimal_units(value, type_.digits, type_.scale, units)) return false;
                store(units, true);
                return true;
            }
            default: return append_int(value);
        }
    }

   private:
    bool append_bool(PyObject* value) {
        if (!PyBool_Check(value) && !is_numpy_bool(value)) return false;
        const int truth = PyObject_IsTrue(value);
        if (truth >= 0) store(static_cast<uint64_t>(truth), true);
        return truth >= 0;
    }

    bool append_real(PyObject* value) {
        double number = 0;
        if (!to_real(value, number)) return false;
        if (type_.width == 4) {
            store(static_cast<float>(number), true);
        } else {
            store(number, true);
        }
        return true;
    }

    bool append_int(PyObject* value) {
        int64_t number = 0;
        const bool fits = type_.meaning == Meaning::Date        ? to_date(value, number)
                          : type_.meaning == Meaning::Timestamp ? to_timestamp(value, number)
                                                                : to_int(value, number);
        const int bits = 8 * type_.width;
        if (!fits || (bits < 64 && (number >> (bits - 1)) != (number < 0 ? -1 : 0))) return false;
        store(number, true);
        return true;
    }

    template <class T>
    void store(T value, bool valid) {
        mark(valid);
        const auto width = static_cast<size_t>(type_.kind == Kind::Bool ? 1 : type_.width);
        const auto at = static_cast<size_t>(length_) * width;
        bytes_.reserve(at + sizeof(int128));
        std::memcpy(bytes_.data() + at, &value, sizeof(T) < width ? sizeof(T) : width);
    }

    Buffer bytes_;
};

class BytesBuilder : public WithValidity {
   public:
    explicit BytesBuilder(const Type& type) : WithValidity(type) { ends_.push_back(0); }

    void truncate(int64_t length) override {
        length_ = length;
        ends_.resize(static_cast<size_t>(length) + 1);
    }

    ArrayOut done() override {
        ArrayOut out;
        out.buffers.push_back(validity(out));
        Buffer offsets(ends_.size() * 8);
        for (size_t i = 0; i < ends_.size(); i++) {
            if (type_.wide) {
                offsets.as<int64_t>()[i] = ends_[i];
            } else {
                offsets.as<int32_t>()[i] = static_cast<int32_t>(ends_[i]);
            }
        }
        out.buffers.push_back(std::move(offsets));
        bytes_.reserve(1);
        out.buffers.push_back(std::move(bytes_));
        return out;
    }

   protected:
    void append_null() override {
        mark(false);
        ends_.push_back(ends_.back());
    }

    bool append_value(PyObject* value) override {
        if (type_.meaning == Meaning::Text) {
            Py_ssize_t size = 0;
            const char* text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : nullptr;
            return text != nullptr && store(text, size);
        }
        if (PyBytes_Check(value)) return store(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
        Py_buffer view;
        if (!PyObject_CheckBuffer(value) || PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) != 0) return false;
        const bool stored = store(static_cast<const char*>(view.buf), view.len);
        PyBuffer_Release(&view);
        return stored;
    }

   private:
    bool store(const char* data, Py_ssize_t size) {
        const int64_t start = ends_.back();
        if (!type_.wide && start + size > std::numeric_limits<int32_t>::max()) {
            PyErr_SetString(PyExc_OverflowError, "text is longer than 2 GiB in one batch; make batches smaller");
            return false;
        }
        bytes_.reserve(static_cast<size_t>(start + size));
        if (size > 0) std::memcpy(bytes_.data() + start, data, static_cast<size_t>(size));
        mark(true);
        ends_.push_back(start + size);
        return true;
    }

    std::vector<int64_t> ends_;
    Buffer bytes_;
};

// Values stay Python objects until pyarrow converts them all. Each is tried by itself first, so that a fault names its
// row.
class ObjectBuilder : public Builder {
   public:
    ObjectBuilder(const Type& type, nb::handle check) : Builder(type), check_(nb::borrow(check)) {}

    void truncate(int64_t length) override {
        PyList_SetSlice(values_.ptr(), static_cast<Py_ssize_t>(length), PyList_GET_SIZE(values_.ptr()), nullptr);
        length_ = length;
    }

    ArrayOut done() override { return {}; }
    PyObject* list() override { return values_.ptr(); }

   protected:
    void append_null() override {
        if (PyList_Append(values_.ptr(), Py_None) != 0) throw nb::python_error();
    }

    bool append_value(PyObject* value) override {
        PyObject* answer = PyObject_CallOneArg(check_.ptr(), value);
        Py_XDECREF(answer);
        return answer != nullptr && PyList_Append(values_.ptr(), value) == 0;
    }

   private:
    nb::object check_;
    nb::list values_;
};

}  // namespace

bool builds(const Type& type) {
    if (type.dictionary) return false;
    switch (type.kind) {
        case Kind::Bool:
        case Kind::UInt:
        case Kind::Bytes: return true;
        case Kind::Float: return type.width >= 4;
        case Kind::Decimal: return type.width == 16;
        case Kind::Struct:
        case Kind::List: return std::all_of(type.children.begin(), type.children.end(), builds);
        case Kind::Int:
            return type.meaning == Meaning::Plain || type.meaning == Meaning::Date ||
                   (type.meaning == Meaning::Timestamp && type.per_second == 1'000'000);
        default: return false;
    }
}

bool timestamp_us(PyObject* value, int64_t& out) {
    if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
    return PyDateTimeAPI != nullptr && to_timestamp(value, out);
}

std::unique_ptr<Builder> make_native_builder(const Type& type) {
    if (type.kind == Kind::Bytes) return std::make_unique<BytesBuilder>(type);
    if (type.kind == Kind::Struct || type.kind == Kind::List) return make_nested_builder(type);
    return std::make_unique<FixedBuilder>(type);
}

std::unique_ptr<Builder> make_builder(const Type& type, nb::handle help) {
    if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
    if (PyDateTimeAPI == nullptr) throw nb::python_error();
    if (!builds(type)) return std::make_unique<ObjectBuilder>(type, help);
    if (help.is_none()) return make_native_builder(type);
    return make_forgiving_builder(type, help);
}

}  // namespace penstock
