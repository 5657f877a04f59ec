// forge template: a chat template rendered, exactly as the model will see it.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/model_text.h"
#include "base/error.h"
#include "base/json.h"
#include "chat/template.h"
#include "commands.h"
#include "input.h"
#include "options.h"

namespace forge::cli {
namespace {

struct TemplateOptions {
    std::string model, inputs, now;
    bool source = false;
};

std::chrono::year_month_day checked(std::chrono::year_month_day date, const std::string& text) {
    if (!date.ok()) fail("a date such as 2026-01-31 is wanted, found '{}'", text);
    return date;
}

// --now, else SOURCE_DATE_EPOCH, else nullopt (today).
std::optional<std::chrono::year_month_day> date_of(const std::string& now) {
    using namespace std::chrono;
    if (!now.empty()) {
        int y = 0, used = 0;
        unsigned m = 0, d = 0;
        if (std::sscanf(now.c_str(), "%4d-%2u-%2u%n", &y, &m, &d, &used) != 3 ||
            (static_cast<std::size_t>(used) != now.size() && now[static_cast<std::size_t>(used)] != 'T'))
            fail("a date such as 2026-01-31 is wanted, found '{}'", now);
        return checked(year(y) / month(m) / day(d), now);
    }
    if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH"); epoch && *epoch) {
        char* end = nullptr;
        const long long seconds = std::strtoll(epoch, &end, 10);
        if (*end != 0 || seconds < 0 || seconds > 253402300799ll)
            fail("SOURCE_DATE_EPOCH should be seconds since 1970, found '{}'", epoch);
        return year_month_day(floor<days>(sys_seconds(std::chrono::seconds(seconds))));
    }
    return std::nullopt;
}

// The inputs, and the model's own bos_token and so on where they are not given. The text is kept as it
// is, because templates see number formats and key order.
std::string with_special_tokens(const std::string& inputs, const nlohmann::json& json, const std::string& model) {
    if (std::filesystem::path(model).extension() == ".jinja" || !has_tokenizer(model)) return inputs;
    std::string added;
    const auto tokens = special_tokens(*load_tokenizer(model));
    for (const auto& [name, value] : tokens.items())
        if (!json.contains(name)) added += nlohmann::json(name).dump() + ": " + value.dump() + ", ";
    if (json.empty() && !added.empty()) added.resize(added.size() - 2);
    const std::size_t brace = inputs.find('{') + 1;
    return inputs.substr(0, brace) + added + inputs.substr(brace);
}

void render(const TemplateOptions& o) {
    const std::string inputs = o.source ? "{}" : read_input(o.inputs);
    const auto json = parse_json<nlohmann::json>(inputs, o.inputs, false);
    if (!json.is_object())
        fail("{} should hold a JSON object with the template's variables (messages, tools, ...)", o.inputs);
    const bool tools = json.contains("tools") && json["tools"].is_array() && !json["tools"].empty();
    const TemplateSet templates = chat_templates(o.model);
    if (templates.empty()) fail("{} has no chat template", o.model);
    const std::string name = templates.choose(tools);
    const std::string text = o.source ? templates.source(name)
        : templates.get(name).render_json_text(with_special_tokens(inputs, json, o.model), {.now = date_of(o.now)});
    std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_template(CLI::App& app, int&) {
    auto options = std::make_shared<TemplateOptions>();
    CLI::App* command = app.add_subcommand("template", "Print a chat template rendered, and nothing else");
    command->add_option("-m,--model,model", options->model, "Model, folder, or a .jinja file")->type_name("MODEL");
    command->add_option("--inputs", options->inputs,
        "JSON object with the template's variables: messages, tools, add_generation_prompt, "
        "bos_token, enable_thinking, ...; - for standard input")->type_name("FILE");
    command->add_option("--now", options->now, "The date that the template sees (else SOURCE_DATE_EPOCH, else today)")
        ->type_name("DATE");
    command->add_flag("--source", options->source, "Print the template itself");
    command->footer("Examples:\n"
                    "  forge template model.gguf --inputs conversation.json\n"
                    "  forge template chat.jinja --inputs - --now 2026-01-31 < conversation.json\n"
                    "  forge template model.gguf --source > chat.jinja");
    command->callback([options] {
        require_argument(options->model, "MODEL");
        if (!options->source) require_argument(options->inputs, "--inputs FILE");
        render(*options);
    });
}

}  // namespace forge::cli
