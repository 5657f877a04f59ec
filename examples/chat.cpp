// A conversation of two questions, streamed: chat MODEL
#include <forge/forge.hpp>

#include <iostream>

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: chat MODEL\n";
        return 2;
    }
    try {
        forge::Model model(argv[1]);
        forge::Session session(model);
        forge::Options options(model);
        options.raw.max_tokens = 100;
        const auto show = [](std::string_view text) { return static_cast<bool>(std::cout << text << std::flush); };

        std::vector<forge::Message> messages;
        for (const char* question : {"What is the capital of France?", "And of Italy?"}) {
            messages.push_back({"user", question});
            std::cout << "> " << question << "\n";
            const forge::Answer answer = session.chat(messages, options, show);
            std::cout << "\n(" << answer.result.new_tokens << " tokens; " << answer.result.cached_tokens << " of the prompt's "
                      << answer.result.prompt_tokens << " known from before)\n";
            messages.push_back({"assistant", answer.text});
        }
    } catch (const forge::Error& error) {
        std::cerr << "error: " << error.what() << "\n";
        return 1;
    }
}
