// forge login, forge logout: tokens and passwords of hubs and registries.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "transport/credentials.h"
#include "transport/http.h"
#include "usage.h"

namespace forge::cli {
namespace {

struct Flags {
    std::string host = "huggingface.co", user;
};

// Switches the terminal's echo off, and back on however this ends.
class Silence {
  public:
    Silence() : active_(tcgetattr(0, &before_) == 0) {
        if (!active_) return;
        termios quiet = before_;
        quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
        tcsetattr(0, TCSAFLUSH, &quiet);
    }
    ~Silence() {
        if (active_) tcsetattr(0, TCSAFLUSH, &before_);
    }

  private:
    termios before_{};
    bool active_;
};

// One line of standard input, without its end; typed ones are not shown.
std::string read_secret(const std::string& prompt) {
    const bool terminal = isatty(0);
    const InterruptGuard interrupt;
    std::string line;
    if (terminal) fmt::print(stderr, "{}", prompt);
    {
        std::unique_ptr<Silence> silence = terminal ? std::make_unique<Silence>() : nullptr;
        for (char c = 0; line.size() < 16384;) {
            const ssize_t n = ::read(0, &c, 1);
            if (interrupt.requested()) break;
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0 || c == '\n') break;
            line += c;
        }
    }
    if (terminal) fmt::print(stderr, "\n");
    if (interrupt.requested()) throw Interrupted();
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    return line;
}

// "https://Host/" is accepted for "host".
std::string plain_host(std::string host) {
    if (const std::size_t scheme = host.find("://"); scheme != std::string::npos) host.erase(0, scheme + 3);
    host = host.substr(0, host.find('/'));
    const Url url = parse_url("https://" + host);  // checks the characters and the port
    return url.port == 443 ? url.host : fmt::format("{}:{}", url.host, url.port);
}

}  // namespace

void add_login(CLI::App& app, int& status) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("login", "Keep a token for a hub or a registry");
    command->add_option("host", flags->host, "The host, such as ghcr.io or localhost:5000 (default huggingface.co)")->type_name("HOST");
    command->add_option("-u,--user", flags->user, "User name, where the host wants one")->type_name("NAME");
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge login huggingface.co\n"
                    "  forge login registry.example:5000 --user ada < password.txt\n"
                    "The token or password is read from the terminal, without showing it, or from standard input.\n"
                    "It is kept in credentials.json in the config folder, which only you can read.");
    command->callback([flags, &status] {
        const std::string host = plain_host(flags->host);
        std::string secret;
        try {
            secret = read_secret(fmt::format("{} for {}: ", flags->user.empty() ? "Token" : "Password of " + flags->user, host));
        } catch (const Interrupted&) {
            status = exit_interrupted;
            return;
        }
        if (secret.empty()) fail("no token was given; nothing was kept");
        for (const char c : secret)
            if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) fail("the token holds a control character; nothing was kept");
        store_credential(host, {flags->user, secret});
        fmt::print("kept a {} for {} in {}\n", flags->user.empty() ? "token" : "password", host, credentials_file().string());
    });
}

void add_logout(CLI::App& app, int& status) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("logout", "Forget what forge login kept");
    command->add_option("host", flags->host, "The host (default huggingface.co)")->type_name("HOST");
    add_log_flags(*command);
    command->footer("Examples:\n"
                    "  forge logout huggingface.co");
    command->callback([flags, &status] {
        const std::string host = plain_host(flags->host);
        if (forget_credential(host)) {
            fmt::print("forgot what was kept for {}\n", host);
        } else {
            log_message(LogLevel::error, fmt::format("nothing is kept for {} in {}", host, credentials_file().string()));
            status = exit_failed;
        }
    });
}

}  // namespace forge::cli
