// Options that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace forge::cli {

// MODEL as the first argument or -m/--model. Checked by require_argument, so that an unknown
// option is named before a missing model is.
void add_model_argument(CLI::App& command, std::string& model);

// A usage error when `value` is empty.
void require_argument(const std::string& value, const char* name);

}  // namespace forge::cli
