// Renders templates from standard input for comparisons with the reference: each line is
// {"template": ..., "context": {...}}; each answer is a JSON string, or {"error": ...}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "chat/template.h"

int main() {
    using nlohmann::ordered_json;
    std::string line;
    while (std::getline(std::cin, line)) {
        ordered_json answer;
        try {
            const ordered_json request = ordered_json::parse(line);
            forge::RenderOptions options;
            options.now = std::chrono::year(2026) / 1 / 2;
            answer = forge::ChatTemplate::parse(request["template"].get<std::string>())
                         .render(request["context"], options);
        } catch (const std::exception& error) {
            answer = {{"error", error.what()}};
        }
        std::cout << answer.dump() << "\n" << std::flush;
    }
}
