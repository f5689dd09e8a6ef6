// Arrow values to Python objects, as pyarrow's `as_py` makes them: Spark's types here, anything else by pyarrow itself.
//
// A struct becomes a dict, a list a list, a map a list of pairs. Whether a type is read here is decided once per
// column, so that no value is read halfway.
#include <Python.h>
#include <datetime.h>

#include <algorithm>

#include "kernels/rows/decimal_text.hpp"
#include "kernels/rows/row.hpp"

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

bool reads_whole(const Type& type) {
    switch (type.meaning) {
        case Meaning::Plain:
        case Meaning::Date: return true;
        case Meaning::Timestamp: return type.per_second == 1'000'000 && (!type.zoned || type.utc);
        default: return false;
    }
}

bool distinct_names(const Type& type) {
    for (size_t a = 0; a < type.children.size(); a++)
        for (size_t b = 0; b < a; b++)
            if (type.children[a].name == type.children[b].name) return false;
    return true;
}

bool reads(const Type& type) {
    if (type.dictionary) return reads(*type.dictionary);
    switch (type.kind) {
        case Kind::Null:
        case Kind::Bool:
        case Kind::UInt:
        case Kind::Bytes: return true;
        case Kind::Int: return reads_whole(type);
        case Kind::Float: return type.width != 2;
        case Kind::Decimal: return type.width == 16;
        case Kind::Struct:
            if (!distinct_names(type)) return false;
            [[fallthrough]];
        case Kind::List:
        case Kind::FixedList: return std::all_of(type.children.begin(), type.children.end(), reads);
        default: return false;
    }
}

PyObject* outside_calendar(int64_t value, const char* unit) {
    PyErr_Format(PyExc_OverflowError,
                 "a time of %lld %s since 1970 is outside the years 1 to 9999, which Python's datetime knows; use "
                 "map_batches for such rows",
                 static_cast<long long>(value), unit);
    return nullptr;
}

PyObject* whole_value(const Type& type, int64_t value) {
    if (type.meaning == Meaning::Plain) return PyLong_FromLongLong(value);
    if (type.meaning == Meaning::Date) {
        if (!in_calendar(value)) return outside_calendar(value, "days");
        const Civil date = civil(value);
        return PyDate_FromDate(date.year, date.month, date.day);
    }
    const int64_t day = (value >= 0 ? value : value - (DAY_US - 1)) / DAY_US;
    return in_calendar(day) ? timestamp_object(value, type.utc) : outside_calendar(value, "microseconds");
}

PyObject* text_or_bytes(const Column& column, int64_t i) {
    const std::string_view bytes = column.bytes(i);
    const auto size = static_cast<Py_ssize_t>(bytes.size());
    if (column.type->meaning == Meaning::Text) return PyUnicode_DecodeUTF8(bytes.data(), size, nullptr);
    return PyBytes_FromStringAndSize(bytes.data(), size);
}

PyObject* read_value(const Column& column, int64_t i, FieldNames& names);

// The fields of a struct whose value i is element offset + i of its children.
template <class Put>
bool each_field(const Column& column, int64_t i, FieldNames& names, Put put) {
    for (size_t c = 0; c < column.children.size(); c++) {
        PyObject* value = read_value(column.children[c], column.offset + i, names);
        if (value == nullptr || !put(c, value)) return false;
    }
    return true;
}

PyObject* struct_value(const Column& column, int64_t i, FieldNames& names) {
    PyObject* keys = names.of(*column.type);
    PyObject* found = keys == nullptr ? nullptr : PyDict_New();
    if (found == nullptr) return nullptr;
    const bool read = each_field(column, i, names, [&](size_t c, PyObject* value) {
        const int failed = PyDict_SetItem(found, PyTuple_GET_ITEM(keys, static_cast<Py_ssize_t>(c)), value);
        Py_DECREF(value);
        return failed == 0;
    });
    if (!read) Py_CLEAR(found);
    return found;
}

PyObject* pair_value(const Column& column, int64_t i, FieldNames& names) {
    PyObject* pair = PyTuple_New(static_cast<Py_ssize_t>(column.children.size()));
    if (pair == nullptr) return nullptr;
    const bool read = each_field(column, i, names, [&](size_t c, PyObject* value) {
        PyTuple_SET_ITEM(pair, static_cast<Py_ssize_t>(c), value);
        return true;
    });
    if (!read) Py_CLEAR(pair);
    return pair;
}

PyObject* list_value(const Column& column, int64_t i, FieldNames& names) {
    const Type& type = *column.type;
    const bool fixed = type.kind == Kind::FixedList;
    const int64_t start = fixed ? (column.offset + i) * type.width : column.start_of(i);
    const int64_t end = fixed ? start + type.width : column.end_of(i);
    const Column& items = column.children[0];
    PyObject* found = PyList_New(static_cast<Py_ssize_t>(end - start));
    for (int64_t at = start; found != nullptr && at < end; at++) {
        PyObject* value = type.map ? pair_value(items, at, names) : read_value(items, at, names);
        if (value == nullptr) {
            Py_CLEAR(found);
        } else {
            PyList_SET_ITEM(found, static_cast<Py_ssize_t>(at - start), value);
        }
    }
    return found;
}

PyObject* read_value(const Column& column, int64_t i, FieldNames& names) {
    if (!column.valid(i)) return Py_NewRef(Py_None);
    if (column.dictionary) return read_value(*column.dictionary, column.integer(i), names);
    const Type& type = *column.type;
    switch (type.kind) {
        case Kind::Bool: return PyBool_FromLong(column.bit(i));
        case Kind::Float: return PyFloat_FromDouble(column.real(i));
        case Kind::UInt: return PyLong_FromUnsignedLongLong(static_cast<uint64_t>(column.integer(i)));
        case Kind::Bytes: return text_or_bytes(column, i);
        case Kind::Decimal: return decimal_object(column.load<int128>(column.offset + i), type.scale);
        case Kind::Struct: return struct_value(column, i, names);
        case Kind::List:
        case Kind::FixedList: return list_value(column, i, names);
        default: return whole_value(type, column.integer(i));
    }
}

}  // namespace

RowSource::RowSource(nb::object layout, nb::object pyarrow_batch, nb::object names)
    : batch(import_batch(nb::cast<const Layout&>(layout), pyarrow_batch)),
      layout_(std::move(layout)),
      pyarrow_batch_(std::move(pyarrow_batch)),
      names_(std::move(names)) {
    if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
    if (PyDateTimeAPI == nullptr) throw nb::python_error();
    for (const Column& column : batch->columns) reads_.push_back(reads(*column.type));
}

PyObject* RowSource::value(Py_ssize_t column, int64_t row) {
    const auto at = static_cast<size_t>(column);
    return reads_[at] ? read_value(batch->columns[at], row, field_names_) : slow_value(column, row);
}

PyObject* FieldNames::of(const Type& type) {
    for (const auto& [known, names] : known_)
        if (known == &type) return names.ptr();
    nb::object names = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(type.children.size())));
    for (size_t c = 0; names.is_valid() && c < type.children.size(); c++) {
        const std::string& text = type.children[c].name;
        PyObject* name = PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
        if (name == nullptr) return nullptr;
        PyUnicode_InternInPlace(&name);
        PyTuple_SET_ITEM(names.ptr(), static_cast<Py_ssize_t>(c), name);
    }
    if (!names.is_valid()) return nullptr;
    known_.emplace_back(&type, std::move(names));
    return known_.back().second.ptr();
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
