// Options that forge pull and forge push share.
#pragma once

#include <functional>

#include "transport/download.h"

namespace CLI {
class App;
}

namespace forge::cli {

class TransferFlags {
  public:
    void add(CLI::App& command);
    DownloadOptions download(std::function<bool()> cancelled) const;

  private:
    int connections_ = 8;
    int tries_ = 6;
    double timeout_ = 30;  // seconds without a byte
};

}  // namespace forge::cli
