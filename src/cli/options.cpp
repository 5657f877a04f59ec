#include "options.h"

namespace forge::cli {

void add_model_argument(CLI::App& command, std::string& model) {
    command.add_option("-m,--model,model", model, "Model: a GGUF file, a .safetensors file or a folder")->type_name("MODEL");
}

void require_argument(const std::string& value, const char* name) {
    if (value.empty()) throw CLI::RequiredError(name);
}

}  // namespace forge::cli
