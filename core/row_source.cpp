// Arrow values to Python objects: plain types here, everything else through pyarrow's own `as_py`.
#include <Python.h>
#include <datetime.h>

#include "row.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

struct Civil {
    int year;
    int month;
    int day;
};

// Days since 1970 to a date of the Gregorian calendar, by counting eras of 400 years that begin on 1 March.
Civil civil(int64_t days) {
    days += 719468;
    const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    const int64_t day_of_era = days - era * 146097;
    const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t shifted = (5 * day_of_year + 2) / 153;
    const auto day = static_cast<int>(day_of_year - (153 * shifted + 2) / 5 + 1);
    const auto month = static_cast<int>(shifted < 10 ? shifted + 3 : shifted - 9);
    return {static_cast<int>(year_of_era + era * 400 + (month <= 2)), month, day};
}

constexpr int64_t DAY_MIN = -719162;  // 0001-01-01
constexpr int64_t DAY_MAX = 2932896;  // 9999-12-31
constexpr int64_t DAY_US = 86'400'000'000;

bool in_calendar(int64_t day) { return day >= DAY_MIN && day <= DAY_MAX; }

PyObject* timestamp_object(int64_t time_us, bool utc) {
    const int64_t day = (time_us >= 0 ? time_us : time_us - (DAY_US - 1)) / DAY_US;
    const int64_t rest = time_us - day * DAY_US;
    const Civil date = civil(day);
    const auto second = rest / 1'000'000;
    PyObject* zone = utc ? PyDateTime_TimeZone_UTC : Py_None;
    return PyDateTimeAPI->DateTime_FromDateAndTime(date.year, date.month, date.day, static_cast<int>(second / 3600),
                                                   static_cast<int>(second / 60 % 60), static_cast<int>(second % 60),
                                                   static_cast<int>(rest % 1'000'000), zone, PyDateTimeAPI->DateTimeType);
}

// nullptr without an exception: not a type that is read here.
PyObject* plain_value(const Column& column, int64_t i) {
    if (!column.valid(i)) return Py_NewRef(Py_None);
    if (column.dictionary) return plain_value(*column.dictionary, column.integer(i));
    const Type& type = *column.type;
    switch (type.kind) {
        case Kind::Bool: return PyBool_FromLong(column.bit(i));
        case Kind::Float: return type.width == 2 ? nullptr : PyFloat_FromDouble(column.real(i));
        case Kind::UInt: return PyLong_FromUnsignedLongLong(static_cast<uint64_t>(column.integer(i)));
        case Kind::Bytes: {
            const std::string_view bytes = column.bytes(i);
            const auto size = static_cast<Py_ssize_t>(bytes.size());
            if (type.meaning == Meaning::Text) return PyUnicode_DecodeUTF8(bytes.data(), size, nullptr);
            return PyBytes_FromStringAndSize(bytes.data(), size);
        }
        case Kind::Int: break;
        default: return nullptr;
    }
    const int64_t value = column.integer(i);
    if (type.meaning == Meaning::Plain) return PyLong_FromLongLong(value);
    if (type.meaning == Meaning::Date && in_calendar(value)) {
        const Civil date = civil(value);
        return PyDate_FromDate(date.year, date.month, date.day);
    }
    const bool microseconds = type.meaning == Meaning::Timestamp && type.per_second == 1'000'000;
    if (microseconds && (!type.zoned || type.utc) && in_calendar(value / DAY_US - 1) && in_calendar(value / DAY_US + 1))
        return timestamp_object(value, type.utc);
    return nullptr;
}

}  // namespace

RowSource::RowSource(nb::object layout, nb::object pyarrow_batch, nb::object names)
    : batch(import_batch(nb::cast<const Layout&>(layout), pyarrow_batch)),
      layout_(std::move(layout)),
      pyarrow_batch_(std::move(pyarrow_batch)),
      names_(std::move(names)) {
    if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
    if (PyDateTimeAPI == nullptr) throw nb::python_error();
}

PyObject* RowSource::value(Py_ssize_t column, int64_t row) {
    PyObject* found = plain_value(batch->columns[static_cast<size_t>(column)], row);
    return found != nullptr || PyErr_Occurred() ? found : slow_value(column, row);
}

PyObject* RowSource::slow_value(Py_ssize_t column, int64_t row) {
    const auto at = static_cast<size_t>(column);
    if (slow_columns_.empty()) slow_columns_.resize(batch->columns.size());
    if (!slow_columns_[at].is_valid()) {
        PyObject* fetched = PyObject_CallMethod(pyarrow_batch_.ptr(), "column", "n", column);
        if (fetched == nullptr) return nullptr;
        slow_columns_[at] = nb::steal(fetched);
    }
    PyObject* scalar = PySequence_GetItem(slow_columns_[at].ptr(), static_cast<Py_ssize_t>(row));
    if (scalar == nullptr) return nullptr;
    PyObject* value = PyObject_CallMethod(scalar, "as_py", nullptr);
    Py_DECREF(scalar);
    return value;
}

}  // namespace penstock
