#include "run_forge.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

extern char** environ;

namespace forge::test {
namespace {

struct Pipe {
    int read_end = -1, write_end = -1;
    Pipe() {
        int ends[2];
        if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
        read_end = ends[0];
        write_end = ends[1];
        fcntl(read_end, F_SETFD, FD_CLOEXEC);
        fcntl(write_end, F_SETFD, FD_CLOEXEC);
    }
    ~Pipe() {
        close_read();
        close_write();
    }
    void close_read() { if (read_end >= 0) close(read_end); read_end = -1; }
    void close_write() { if (write_end >= 0) close(write_end); write_end = -1; }
};

}  // namespace

Finished run_forge(const std::vector<std::string>& arguments, const RunOptions& options) {
    std::vector<std::string> words{FORGE_BINARY};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv, env;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    auto added = options.environment;
    // Kernels are timed only by tests of that; the first of two settings counts.
    added.push_back("FORGE_TUNE=off");
    for (std::string& entry : added) env.push_back(entry.data());
    for (char** entry = environ; *entry; ++entry) env.push_back(*entry);
    env.push_back(nullptr);

    Pipe in, out, err;
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fork failed");
    if (child == 0) {
        dup2(in.read_end, 0);
        dup2(out.write_end, 1);
        dup2(err.write_end, 2);
        execve(FORGE_BINARY, argv.data(), env.data());
        _exit(127);
    }
    in.close_read();
    out.close_write();
    err.close_write();
    signal(SIGPIPE, SIG_IGN);  // a program that does not read its input is not our failure
    fcntl(in.write_end, F_SETFL, O_NONBLOCK);

    Finished result;
    std::size_t written = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout_seconds);
    bool killed = false;
    while (out.read_end >= 0 || err.read_end >= 0) {
        if (in.write_end >= 0 && written == options.input.size()) in.close_write();
        std::array<pollfd, 3> fds{{{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}, {in.write_end, POLLOUT, 0}}};
        poll(fds.data(), fds.size(), 200);
        if (in.write_end >= 0 && (fds[2].revents & (POLLOUT | POLLERR))) {
            const ssize_t n = write(in.write_end, options.input.data() + written, options.input.size() - written);
            if (n > 0) written += static_cast<std::size_t>(n);
            if (n < 0 && errno != EAGAIN) in.close_write();
        }
        const auto drain = [](Pipe& pipe, const pollfd& fd, std::string& to) {
            if (pipe.read_end < 0 || !(fd.revents & (POLLIN | POLLHUP | POLLERR))) return false;
            std::array<char, 65536> buffer;
            const ssize_t n = read(pipe.read_end, buffer.data(), buffer.size());
            if (n > 0) to.append(buffer.data(), static_cast<std::size_t>(n));
            if (n == 0) pipe.close_read();
            return n > 0;
        };
        if (drain(out, fds[0], result.out) && options.on_output) {
            if (const int number = options.on_output(result.out)) kill(child, number);
        }
        drain(err, fds[1], result.err);
        if (options.on_wait) {
            if (const int number = options.on_wait()) kill(child, number);
        }
        if (!killed && std::chrono::steady_clock::now() > deadline) {
            kill(child, SIGKILL);
            killed = true;
        }
    }
    int status = 0;
    waitpid(child, &status, 0);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (killed) result.err += "\n(killed by the test after its time limit)";
    return result;
}

std::string write_temporary(const std::string& name, const std::string& content) {
    // Removed when the test program ends.
    struct Folder {
        std::filesystem::path path;
        Folder() {
            std::string name = (std::filesystem::temp_directory_path() / "forge-cli-XXXXXX").string();
            if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
            path = name;
        }
        ~Folder() {
            std::error_code ignored;
            std::filesystem::remove_all(path, ignored);
        }
    };
    static const Folder folder;
    const auto target = folder.path / name;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream out(target, std::ios::binary);
    out << content;
    if (!out.flush()) throw std::runtime_error("cannot write " + target.string());
    return target.string();
}

std::string tiny_model(const std::string& name) { return std::string(FORGE_TEST_DATA "/models/") + name; }

}  // namespace forge::test
