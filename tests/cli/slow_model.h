// A model that is loaded for as long as a test wants: one of its files is a pipe.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "run_forge.h"
#include "tiny_chat.h"

namespace forge::test {

class SlowModel {
  public:
    explicit SlowModel(const std::string& name) {
        namespace fs = std::filesystem;
        path_ = fs::path(write_temporary(name + "/made-by", "a test")).parent_path().string();
        for (const auto& entry : fs::directory_iterator(tiny_chat_model()))
            if (entry.path().filename() != pipe) fs::copy_file(entry.path(), fs::path(path_) / entry.path().filename(), fs::copy_options::overwrite_existing);
        std::ifstream in(fs::path(tiny_chat_model()) / pipe);
        std::ostringstream text;
        text << in.rdbuf();
        template_ = text.str();
        fs::remove(fs::path(path_) / pipe);
        if (mkfifo((path_ + "/" + pipe).c_str(), 0600) != 0) throw std::runtime_error("mkfifo failed");
    }
    ~SlowModel() {
        if (end_ >= 0) close(end_);
    }
    const std::string& path() const { return path_; }

    // Until somebody loads it, who then waits for finish().
    void wait_until_read() { end_ = open((path_ + "/" + pipe).c_str(), O_WRONLY | O_CLOEXEC); }
    // Ends wait_until_read(), whoever waits there for somebody who never came.
    void let_go() const { close(open((path_ + "/" + pipe).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)); }
    void finish() {
        if (write(end_, template_.data(), template_.size()) != static_cast<ssize_t>(template_.size())) throw std::runtime_error("the pipe was closed");
        close(end_);
        end_ = -1;
    }

  private:
    static constexpr const char* pipe = "chat_template.jinja";
    std::string path_, template_;
    int end_ = -1;
};

}  // namespace forge::test
