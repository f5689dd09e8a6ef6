// The row loop: a Python function over every row of a batch, its results into typed columns.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "kernels/rows/builders.hpp"
#include "kernels/rows/python_errors.hpp"
#include "kernels/rows/row.hpp"
#include "kernels/columns/take.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

constexpr int64_t ROWS_OUT_MAX = int64_t{1} << 31;

struct Dropped {  // a hold on a RowSource
    RowSource* source;
    ~Dropped() { source->drop(); }
};

// Calls the function on one row after the other. Where `take` answers false, a Python exception is pending. It is
// handed to `fault`, which raises exceptions that end programs again.
template <class Take, class Undo>
void each_row(RowSource* source, nb::handle function, nb::handle fault, Take take, Undo undo) {
    nb::object row;
    for (int64_t i = 0; i < source->batch->rows; i++) {
        move_row(row, source, i);
        PyObject* result = PyObject_CallOneArg(function.ptr(), row.ptr());
        const bool taken = result != nullptr && take(i, result);
        Py_XDECREF(result);
        if (taken) continue;
        undo();
        fault(i, take_exception(), row);
    }
}

class Table {
   public:
    Table(const Layout& layout, nb::handle names, nb::handle declared, const std::vector<nb::object>& help,
          bool bare_lists, bool bare_dicts, const char* came = "the function returned")
        : names_(names), declared_(declared), bare_lists_(bare_lists), bare_dicts_(bare_dicts), came_(came) {
        for (size_t c = 0; c < help.size(); c++) builders_.push_back(make_builder(layout.root.children.at(c), help[c]));
    }

    int64_t rows() const { return rows_; }

    void truncate(int64_t rows) {
        rows_ = rows;
        for (auto& builder : builders_)
            if (builder->length() > rows) builder->truncate(rows);
    }

    // One result of the function as one row.
    bool append(PyObject* value) {
        if (rows_ >= ROWS_OUT_MAX) {
            PyErr_SetString(PyExc_OverflowError, "the function gave more than 2 billion rows for one batch");
            return false;
        }
        const bool appended = append_shape(value);
        rows_ += appended;
        return appended;
    }

    bool append_all(PyObject* values) {
        if (values == Py_None) return true;
        if (PyUnicode_Check(values) || PyBytes_Check(values) || PyDict_Check(values) || is_row(values)) {
            PyErr_Format(PyExc_TypeError, "a flat_map function returned %.200R; return a list of rows, or yield them", values);
            return false;
        }
        PyObject* iterator = PyObject_GetIter(values);
        if (iterator == nullptr) return false;
        bool fine = true;
        while (fine) {
            PyObject* value = PyIter_Next(iterator);
            if (value == nullptr) break;
            fine = append(value);
            Py_DECREF(value);
        }
        Py_DECREF(iterator);
        return fine && !PyErr_Occurred();
    }

    // The columns that were built here, and those that pyarrow has to convert, as lists.
    nb::tuple done(nb::handle schema) {
        std::vector<ArrayOut> built;
        nb::list lists;
        for (auto& builder : builders_) {
            if (builder->list() != nullptr) {
                lists.append(nb::borrow(builder->list()));
            } else {
                built.push_back(builder->done());
            }
        }
        return nb::make_tuple(to_pyarrow(rows_, std::move(built), schema), lists);
    }

   private:
    bool append_shape(PyObject* value) {
        if (PyTuple_Check(value)) return append_sequence(value);
        if (PyDict_Check(value) && !(bare_dicts_ && !is_record(value))) return append_dict(value);
        if (PyList_Check(value) && !bare_lists_) return append_sequence(value);
        if (is_row(value)) return append_row(value);
        if (builders_.size() == 1) return append_cell(0, value);
        return wrong_shape(value);
    }

    bool append_cell(size_t column, PyObject* value) {
        return builders_[column]->append(value) || wrong_value(column, value);
    }

    bool append_sequence(PyObject* value) {
        const bool tuple = PyTuple_Check(value);
        const Py_ssize_t size = tuple ? PyTuple_GET_SIZE(value) : PyList_GET_SIZE(value);
        if (size != static_cast<Py_ssize_t>(builders_.size())) return wrong_shape(value);
        for (Py_ssize_t i = 0; i < size; i++) {
            if (!tuple && PyList_GET_SIZE(value) != size) return wrong_shape(value);  // a value changed the list
            nb::object item = nb::borrow(tuple ? PyTuple_GET_ITEM(value, i) : PyList_GET_ITEM(value, i));
            if (!append_cell(static_cast<size_t>(i), item.ptr())) return false;
        }
        return true;
    }

    bool append_dict(PyObject* value) {
        if (PyDict_GET_SIZE(value) != static_cast<Py_ssize_t>(builders_.size())) return wrong_shape(value);
        for (size_t c = 0; c < builders_.size(); c++) {
            nb::object item = nb::borrow(PyDict_GetItemWithError(value, name(c)));
            if (!item.is_valid()) return PyErr_Occurred() ? false : wrong_shape(value);
            if (!append_cell(c, item.ptr())) return false;
        }
        return true;
    }

    bool append_row(PyObject* value) {
        PyObject* names = row_names(value);
        if (PyTuple_GET_SIZE(names) != static_cast<Py_ssize_t>(builders_.size())) return wrong_shape(value);
        for (size_t c = 0; c < builders_.size(); c++) {
            const Py_ssize_t at = position_of(names, name(c));
            if (at < 0) return wrong_shape(value);
            nb::object item = nb::steal(row_value(value, at));
            if (!item.is_valid() || !append_cell(c, item.ptr())) return false;
        }
        return true;
    }

    // Whether a dict is the row itself, and not the value of the one column.
    bool is_record(PyObject* value) const { return PyDict_GET_SIZE(value) == 1 && PyDict_Contains(value, name(0)) == 1; }

    PyObject* name(size_t column) const { return PyTuple_GET_ITEM(names_.ptr(), static_cast<Py_ssize_t>(column)); }

    bool wrong_shape(PyObject* value) const {
        nb::object comma = nb::steal(PyUnicode_FromString(", "));
        nb::object names = nb::steal(PyUnicode_Join(comma.ptr(), names_.ptr()));
        PyErr_Format(PyExc_TypeError, "%s %.200R but the declared columns are %U", came_, value, names.ptr());
        return false;
    }

    bool wrong_value(size_t column, PyObject* value) const {
        nb::object cause = PyErr_Occurred() ? take_exception() : nb::object();
        PyErr_Format(PyExc_TypeError, "column %R is declared %U but got %.200R of type %s", name(column),
                     PyTuple_GET_ITEM(declared_.ptr(), static_cast<Py_ssize_t>(column)), value, Py_TYPE(value)->tp_name);
        if (!cause.is_valid()) return false;
        nb::object error = take_exception();
        PyException_SetCause(error.ptr(), cause.release().ptr());
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
        return false;
    }

    nb::handle names_;
    nb::handle declared_;  // the types' names
    bool bare_lists_;
    bool bare_dicts_;
    const char* came_;  // where rows come from, for errors
    std::vector<std::unique_ptr<Builder>> builders_;
    int64_t rows_ = 0;
};

nb::tuple map_rows(nb::object layout, nb::object batch, nb::object names, nb::handle function, nb::handle fault, bool flat,
                   const Layout& out_layout, nb::handle out_names, nb::handle declared,
                   const std::vector<nb::object>& help, bool bare_lists, bool bare_dicts, nb::handle schema) {
    const Dropped hold{new RowSource(std::move(layout), std::move(batch), std::move(names))};
    Table table(out_layout, out_names, declared, help, bare_lists, bare_dicts);
    int64_t before = 0;
    const auto call = [&](int64_t, PyObject* result) {
        const bool taken = flat ? table.append_all(result) : table.append(result);
        if (taken) before = table.rows();
        return taken;
    };
    each_row(hold.source, function, fault, call, [&] { table.truncate(before); });
    return table.done(schema);
}

// The rows that the function keeps, or None for all of them.
nb::object kept_rows(nb::object layout, nb::object batch, nb::object names, nb::handle function, nb::handle fault,
                     bool gather, nb::handle schema) {
    const Dropped hold{new RowSource(std::move(layout), std::move(batch), std::move(names))};
    const auto& imported = hold.source->batch;
    std::vector<uint32_t> kept;
    const auto take_row = [&](int64_t i, PyObject* result) {
        const int truth = PyObject_IsTrue(result);
        if (truth > 0) kept.push_back(static_cast<uint32_t>(i));
        return truth >= 0;
    };
    each_row(hold.source, function, fault, take_row, [] {});
    if (static_cast<int64_t>(kept.size()) == imported->rows) return nb::none();
    if (!gather) return nb::bytes(kept.data(), kept.size() * sizeof(uint32_t));
    std::vector<ArrayOut> columns;
    for (const Column& column : imported->columns)
        columns.push_back(take(column, kept.data(), static_cast<int64_t>(kept.size()), imported));
    return to_pyarrow(static_cast<int64_t>(kept.size()), std::move(columns), schema);
}

// Rows that a user's function emits one by one, into typed columns at once. `refuse` is called with a row that does not
// fit and the reason, and must raise.
class EmittedRows {
   public:
    EmittedRows(nb::object layout, nb::object names, nb::object declared, std::vector<nb::object> checks, bool bare_lists,
                bool bare_dicts, nb::object refuse)
        : layout_(std::move(layout)),
          names_(std::move(names)),
          declared_(std::move(declared)),
          checks_(std::move(checks)),
          bare_lists_(bare_lists),
          bare_dicts_(bare_dicts),
          refuse_(std::move(refuse)) {
        begin();
    }

    void emit(nb::handle row) {
        const int64_t before = table_->rows();
        if (table_->append(row.ptr())) return;
        table_->truncate(before);
        refuse_(row, take_exception());
    }

    int64_t rows() const { return table_->rows(); }

    // As `Table::done`; what is emitted next begins anew.
    nb::tuple take(nb::handle schema) {
        const std::unique_ptr<Table> full = std::move(table_);
        begin();
        return full->done(schema);
    }

   private:
    void begin() {
        table_ = std::make_unique<Table>(nb::cast<const Layout&>(layout_), names_, declared_, checks_, bare_lists_, bare_dicts_,
                                         "the row is");
    }

    nb::object layout_, names_, declared_;
    std::vector<nb::object> checks_;
    bool bare_lists_, bare_dicts_;
    nb::object refuse_;
    std::unique_ptr<Table> table_;
};

}  // namespace

void bind_rows(nb::module_& module) {
    if (!init_row_type(module)) throw nb::python_error();
    module.def("map_rows", &map_rows);
    module.def("kept_rows", &kept_rows);
    nb::class_<EmittedRows>(module, "EmittedRows")
        .def(nb::init<nb::object, nb::object, nb::object, std::vector<nb::object>, bool, bool, nb::object>())
        .def("emit", &EmittedRows::emit, nb::arg("row").none())
        .def("take", &EmittedRows::take)
        .def_prop_ro("rows", &EmittedRows::rows);
    module.def("builds", [](const Layout& layout, uint32_t column) { return builds(layout.root.children.at(column)); });
}

}  // namespace penstock
