// Turns the library's errors into the exceptions of the same name in evenkeel/errors.py, with their data.
#include <nanobind/nanobind.h>

#include <array>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "evenkeel/base/error.h"
#include "evenkeel/base/printable.h"
#include "evenkeel/report/error.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

// Text from a file or path may not be UTF-8.
nb::object text(const std::string& bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

nb::dict data_of(const Error& error) {
  nb::dict data;
  for (const Error::Field& field : error.data()) {
    const nb::object name = text(field.name);
    if (const auto* words = std::get_if<std::string>(&field.value)) data[name] = text(*words);
    if (const auto* whole = std::get_if<std::int64_t>(&field.value)) data[name] = nb::int_(*whole);
    if (const auto* number = std::get_if<double>(&field.value)) data[name] = nb::float_(*number);
  }
  return data;
}

// Arguments whose name in the library and command (first) differs from that in Python (second).
constexpr std::array<std::pair<std::string_view, const char*>, 4> renamed = {
    {{"as", "as_"}, {"from", "from_"}, {"moe_layers", "layers"}, {"groups", "num_groups"}}};

void raise(const Error& error) {
  const nb::object type = nb::module_::import_("evenkeel.errors").attr(error.type().c_str());
  nb::dict data = data_of(error);
  std::string message = error.what();
  for (const auto& [name, here] : renamed) {
    if (error.type() != "InvalidArgument" || !message.starts_with(std::string(name) + ": ")) continue;
    message.replace(0, name.size(), here);
    data["argument"] = here;
    break;
  }
  if (error.type() == "InvalidArgument")
    if (const std::string suggestion = suggested_word(error); !suggestion.empty())
      message += "; did you mean '" + suggestion + "'?";
  const nb::object raised = type(text(message), data);
  PyErr_SetObject(type.ptr(), raised.ptr());
}

}  // namespace

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

void bind_errors(nb::module_& module) {
  // For messages that are made in Python.
  module.def(
      "printable_message",
      [](const nb::bytes& message) {
        return text(shortened(printable({message.c_str(), message.size()}), Error::most_message_bytes));
      },
      nb::arg("message"));
  module.def(
      "suggested_word",
      [](const nb::bytes& why, const nb::bytes& allowed) {
        return text(suggested_word(
            InvalidArgument("", {why.c_str(), why.size()}, std::string(allowed.c_str(), allowed.size()))));
      },
      nb::arg("why"), nb::arg("allowed"));
}

}  // namespace evenkeel::python
