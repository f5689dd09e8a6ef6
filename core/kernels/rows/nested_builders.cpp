// Structs from dicts, lists from lists and tuples, maps from dicts and lists of pairs, built column by column.
//
// pyarrow takes further forms (arrays of numpy, pairs for a struct). They are rare: a value of that kind goes through
// pyarrow once and is taken as the dicts and lists that come back. A key that a dict lacks is null, as in pyarrow.
#include <limits>

#include "kernels/rows/builders.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

class StructBuilder : public WithValidity {
   public:
    explicit StructBuilder(const Type& type) : WithValidity(type) {
        for (const Type& child : type.children) {
            children_.push_back(make_native_builder(child));
            names_.push_back(nb::steal(PyUnicode_FromStringAndSize(child.name.data(), static_cast<Py_ssize_t>(child.name.size()))));
            if (!names_.back().is_valid()) throw nb::python_error();
        }
    }

    void truncate(int64_t length) override {
        length_ = length;
        for (auto& child : children_) child->truncate(length);
    }

    ArrayOut done() override {
        ArrayOut out;
        out.buffers.push_back(validity(out));
        for (auto& child : children_) out.children.push_back(child->done());
        return out;
    }

    // An entry of a map.
    bool append_pair(PyObject* key, PyObject* value) {
        if (!children_[0]->append(key) || !children_[1]->append(value)) return false;
        mark(true);
        length_++;
        return true;
    }

   protected:
    void append_null() override {
        for (auto& child : children_) child->skip();
        mark(false);
    }

    bool append_value(PyObject* value) override {
        if (!PyDict_Check(value)) return false;
        for (size_t c = 0; c < children_.size(); c++) {
            nb::object item = nb::borrow(PyDict_GetItemWithError(value, names_[c].ptr()));
            if (!item.is_valid() && PyErr_Occurred()) return false;
            if (!children_[c]->append(item.is_valid() ? item.ptr() : Py_None)) return false;
        }
        mark(true);
        return true;
    }

   private:
    std::vector<std::unique_ptr<Builder>> children_;
    std::vector<nb::object> names_;
};

class ListBuilder : public WithValidity {
   public:
    explicit ListBuilder(const Type& type) : WithValidity(type), entries_(nullptr) {
        const Type& item = type.children.at(0);
        if (type.map) {
            auto entries = std::make_unique<StructBuilder>(item);
            entries_ = entries.get();
            items_ = std::move(entries);
        } else {
            items_ = make_native_builder(item);
        }
        ends_.push_back(0);
    }

    void truncate(int64_t length) override {
        length_ = length;
        ends_.resize(static_cast<size_t>(length) + 1);
        items_->truncate(ends_.back());
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
        out.children.push_back(items_->done());
        return out;
    }

   protected:
    void append_null() override {
        mark(false);
        ends_.push_back(ends_.back());
    }

    bool append_value(PyObject* value) override {
        nb::object items = nb::borrow(value);
        if (type_.map && PyDict_Check(value)) {
            items = nb::steal(PyDict_Items(value));
            if (!items.is_valid()) return false;
        }
        if (!append_items(items.ptr())) return false;
        if (!type_.wide && items_->length() > std::numeric_limits<int32_t>::max()) {
            PyErr_SetString(PyExc_OverflowError, "lists hold more than 2^31 items in one batch; make batches smaller");
            return false;
        }
        mark(true);
        ends_.push_back(items_->length());
        return true;
    }

   private:
    bool append_items(PyObject* items) {
        const bool tuple = PyTuple_Check(items);
        if (!tuple && !PyList_Check(items)) return false;
        for (Py_ssize_t i = 0; i < (tuple ? PyTuple_GET_SIZE(items) : PyList_GET_SIZE(items)); i++) {
            nb::object item = nb::borrow(tuple ? PyTuple_GET_ITEM(items, i) : PyList_GET_ITEM(items, i));
            if (!(type_.map ? append_entry(item.ptr()) : items_->append(item.ptr()))) return false;
        }
        return true;
    }

    bool append_entry(PyObject* pair) {
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
        return entries_->append_pair(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    }

    std::vector<int64_t> ends_;
    std::unique_ptr<Builder> items_;
    StructBuilder* entries_;  // the items of a map
};

class ForgivingBuilder : public Builder {
   public:
    ForgivingBuilder(const Type& type, nb::handle help)
        : Builder(type), inner_(make_nested_builder(type)), help_(nb::borrow(help)) {}

    void truncate(int64_t length) override {
        length_ = length;
        inner_->truncate(length);
    }

    ArrayOut done() override { return inner_->done(); }

   protected:
    void append_null() override { inner_->skip(); }

    bool append_value(PyObject* value) override {
        if (inner_->append(value)) return true;
        PyErr_Clear();
        inner_->truncate(length_);
        nb::object plain = nb::steal(PyObject_CallOneArg(help_.ptr(), value));
        if (plain.is_valid() && inner_->append(plain.ptr())) return true;
        inner_->truncate(length_);
        return false;
    }

   private:
    std::unique_ptr<Builder> inner_;
    nb::object help_;
};

}  // namespace

std::unique_ptr<Builder> make_nested_builder(const Type& type) {
    if (type.kind == Kind::List) return std::make_unique<ListBuilder>(type);
    return std::make_unique<StructBuilder>(type);
}

std::unique_ptr<Builder> make_forgiving_builder(const Type& type, nb::handle help) {
    return std::make_unique<ForgivingBuilder>(type, help);
}

}  // namespace penstock
