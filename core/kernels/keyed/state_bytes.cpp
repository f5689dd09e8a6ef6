#include "kernels/keyed/state_bytes.hpp"

#include <cstring>
#include <limits>
#include <stdexcept>

namespace nb = nanobind;

namespace penstock {

namespace {

constexpr int DEPTH_MAX = 50;  // as keyed_state.py says
constexpr char NONE = 'N', TRUE = 'T', FALSE = 'F', INT = 'I', REAL = 'D', TEXT = 'S', BYTES = 'B', LIST = 'L', TUPLE = 'U',
               DICT = 'M', OTHER = 'J';

nb::object checked(PyObject* made) {
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
}

class Reader {
   public:
    Reader(std::string_view data, size_t at, nb::object other) : data_(data), at_(at), other_(std::move(other)) {
        if (at > data.size()) damaged();
    }

    bool more() const { return at_ < data_.size(); }
    size_t at() const { return at_; }

    nb::object value(int depth = 0) {
        if (depth > DEPTH_MAX) damaged();
        switch (one<char>()) {
            case NONE: return nb::none();
            case TRUE: return nb::bool_(true);
            case FALSE: return nb::bool_(false);
            case INT: return checked(PyLong_FromLongLong(one<int64_t>()));
            case REAL: return checked(PyFloat_FromDouble(one<double>()));
            case TEXT: return text([](std::string_view t) { return PyUnicode_DecodeUTF8(t.data(), size(t), nullptr); });
            case BYTES: return text([](std::string_view t) { return PyBytes_FromStringAndSize(t.data(), size(t)); });
            case LIST: return list(depth);
            case TUPLE: return checked(PyList_AsTuple(list(depth).ptr()));
            case DICT: return values(depth);
            case OTHER: return other_(text([](std::string_view t) { return PyBytes_FromStringAndSize(t.data(), size(t)); }));
            default: damaged();
        }
    }

    nb::object values(int depth = 0) {
        const auto count = one<uint32_t>();
        nb::dict found;
        for (uint32_t i = 0; i < count; i++) {
            const nb::object name = value(depth + 1);
            const nb::object held = value(depth + 1);
            if (PyDict_SetItem(found.ptr(), name.ptr(), held.ptr()) != 0) throw nb::python_error();
        }
        return found;
    }

    nb::object timers() {
        const auto count = one<uint32_t>();
        nb::list found;
        for (uint32_t i = 0; i < count; i++) {
            const auto at = one<int64_t>();
            found.append(nb::make_tuple(at, one<int64_t>()));
        }
        return found;
    }

   private:
    [[noreturn]] static void damaged() { throw std::invalid_argument("keyed state is cut off or is none"); }
    static Py_ssize_t size(std::string_view text) { return static_cast<Py_ssize_t>(text.size()); }

    template <class T>
    T one() {
        if (data_.size() - at_ < sizeof(T)) damaged();
        T found;
        std::memcpy(&found, data_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return found;
    }

    template <class Make>
    nb::object text(Make make) {
        const auto length = one<uint32_t>();
        if (data_.size() - at_ < length) damaged();
        const std::string_view found = data_.substr(at_, length);
        at_ += length;
        return checked(make(found));
    }

    nb::object list(int depth) {
        const auto count = one<uint32_t>();
        nb::list found;
        for (uint32_t i = 0; i < count; i++) found.append(value(depth + 1));
        return found;
    }

    std::string_view data_;
    size_t at_;
    nb::object other_;
};

uint32_t counted(Py_ssize_t count) {
    if (count > std::numeric_limits<uint32_t>::max()) throw std::length_error("a value of state has more than 4 billion parts");
    return static_cast<uint32_t>(count);
}

}  // namespace

void StateWriter::put_text(char tag, std::string_view text) {
    out_.push_back(tag);
    append(counted(static_cast<Py_ssize_t>(text.size())));
    out_.append(text);
}

void StateWriter::put_other(PyObject* value) {
    const nb::object text = other_(nb::handle(value), nb::handle(name_), nb::handle(key_));
    if (!PyBytes_CheckExact(text.ptr())) throw nb::type_error("values without a form of their own are written as bytes");
    put_text(OTHER, {PyBytes_AS_STRING(text.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(text.ptr()))});
}

bool StateWriter::put_items(char tag, PyObject* values, int depth) {
    const bool is_list = tag == LIST;
    out_.push_back(tag);
    append(counted(is_list ? PyList_GET_SIZE(values) : PyTuple_GET_SIZE(values)));
    const Py_ssize_t count = is_list ? PyList_GET_SIZE(values) : PyTuple_GET_SIZE(values);
    for (Py_ssize_t i = 0; i < count; i++) {
        // Python may be asked for an item, and a list may be shorter afterwards.
        if (is_list && PyList_GET_SIZE(values) != count) throw std::runtime_error("a list of state changed while it was written");
        const nb::object item = nb::borrow(is_list ? PyList_GET_ITEM(values, i) : PyTuple_GET_ITEM(values, i));
        if (!put(item.ptr(), depth + 1)) return false;
    }
    return true;
}

bool StateWriter::put_dict(PyObject* values, int depth) {
    out_.push_back(DICT);
    const Py_ssize_t count = PyDict_GET_SIZE(values);
    append(counted(count));
    PyObject *name = nullptr, *item = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(values, &at, &name, &item)) {
        const nb::object held_name = nb::borrow(name), held = nb::borrow(item);
        if (!put(held_name.ptr(), depth + 1) || !put(held.ptr(), depth + 1)) return false;
        if (PyDict_GET_SIZE(values) != count) throw std::runtime_error("a dict of state changed while it was written");
    }
    return true;
}

bool StateWriter::put(PyObject* value, int depth) {
    if (depth > DEPTH_MAX) return false;
    if (value == Py_None || value == Py_True || value == Py_False) {
        out_.push_back(value == Py_None ? NONE : value == Py_True ? TRUE : FALSE);
    } else if (PyLong_CheckExact(value)) {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow != 0) {
            put_other(value);
        } else {
            out_.push_back(INT);
            append(static_cast<int64_t>(number));
        }
    } else if (PyFloat_CheckExact(value)) {
        out_.push_back(REAL);
        append(PyFloat_AS_DOUBLE(value));
    } else if (PyUnicode_CheckExact(value)) {
        Py_ssize_t size = 0;
        const char* text = PyUnicode_AsUTF8AndSize(value, &size);
        if (text != nullptr) {
            put_text(TEXT, {text, static_cast<size_t>(size)});
        } else {
            PyErr_Clear();  // half of a surrogate pair, which JSON can write
            put_other(value);
        }
    } else if (PyBytes_CheckExact(value)) {
        put_text(BYTES, {PyBytes_AS_STRING(value), static_cast<size_t>(PyBytes_GET_SIZE(value))});
    } else if (PyList_CheckExact(value)) {
        return put_items(LIST, value, depth);
    } else if (PyTuple_CheckExact(value)) {
        return put_items(TUPLE, value, depth);
    } else if (PyDict_CheckExact(value)) {
        return put_dict(value, depth);
    } else {
        put_other(value);
    }
    return true;
}

void StateWriter::put_named(PyObject* value, PyObject* name, PyObject* key) {
    name_ = name;
    key_ = key;
    const size_t start = out_.size();
    if (!put(value, 0)) {
        out_.resize(start);
        put_other(value);
    }
}

void StateWriter::entry(KeyStateObject* state) {
    const size_t start = out_.size();
    try {
        put_named(state->key, Py_None, state->key);
        PyObject* values = as_object(state);
        append(counted(PyDict_GET_SIZE(values)));
        PyObject *name = nullptr, *value = nullptr;
        Py_ssize_t at = 0;
        while (PyDict_Next(values, &at, &name, &value)) {
            const nb::object held_name = nb::borrow(name), held = nb::borrow(value);
            put_named(held_name.ptr(), held_name.ptr(), state->key);
            put_named(held.ptr(), held_name.ptr(), state->key);
        }
        for (int queue = 0; queue < QUEUES; queue++) {
            const size_t count = state->timers == nullptr ? 0 : state->timers->orders[queue].size();
            append(counted(static_cast<Py_ssize_t>(count)));
            if (count > 0)
                for (const auto& [time, order] : state->timers->orders[queue]) {
                    append(time);
                    append(order);
                }
        }
    } catch (...) {
        out_.resize(start);  // half an entry would spoil all behind it
        throw;
    }
}

nb::bytes StateWriter::take() {
    nb::bytes found(out_.data(), out_.size());
    out_.clear();
    return found;
}

nb::tuple read_states(nb::bytes data, size_t at, size_t most, nb::object other) {
    Reader reader({data.c_str(), data.size()}, at, std::move(other));
    nb::list found;
    for (size_t i = 0; i < most && reader.more(); i++) {
        const nb::object key = reader.value();
        const nb::object values = reader.values();
        const nb::object events = reader.timers();
        found.append(nb::make_tuple(key, values, events, reader.timers()));
    }
    return nb::make_tuple(found, reader.at());
}

}  // namespace penstock
