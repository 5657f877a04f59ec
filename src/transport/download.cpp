// Ranges are fetched by several threads into memory and appended in order, so that the file on disk
// is a right beginning at any moment and its digest is computed on the way.
#include "transport/download.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.h"

namespace forge {
namespace {

using Locate = std::function<Location(HttpConnection&)>;
using Bytes = std::vector<std::byte>;

// Thrown by a worker to itself: the server answers a range with the whole file.
struct NoRanges {};

// "bytes FIRST-LAST/TOTAL"
struct ContentRange {
    std::uint64_t first = 0, last = 0, total = 0;
};

std::optional<ContentRange> parse_content_range(std::string_view text) {
    if (!text.starts_with("bytes ")) return std::nullopt;
    text.remove_prefix(6);
    ContentRange range;
    const auto number = [&](std::uint64_t& value, char after) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc()) return false;
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        if (after == 0) return text.empty();
        if (!text.starts_with(after)) return false;
        text.remove_prefix(1);
        return true;
    };
    if (!number(range.first, '-') || !number(range.last, '/') || !number(range.total, 0)) return std::nullopt;
    return range;
}

class Transfer {
  public:
    Transfer(PartialDownload& file, const std::string& what, const Locate& locate, const DownloadOptions& options)
        : file_(file), what_(what), locate_(locate), options_(options), begin_(file.have()), next_(begin_), appended_(begin_) {
        stop_options_ = options_.http;
        stop_options_.cancelled = [this] { return stopping_.load() || options_.http.cancelled(); };
    }

    // Appends ranges until the file is complete; false: the server knows no ranges.
    bool run() {
        const std::uint64_t ranges = (file_.size() - begin_ + options_.range - 1) / options_.range;
        const auto threads = static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(std::max(1, options_.connections)), ranges));
        std::vector<std::thread> workers;
        workers.reserve(static_cast<std::size_t>(threads));
        struct Join {
            Transfer& transfer;
            std::vector<std::thread>& workers;
            ~Join() {
                transfer.stop();
                for (std::thread& worker : workers) worker.join();
            }
        };
        {
            Join join{*this, workers};
            for (int i = 0; i < threads; ++i) workers.emplace_back([this] { work(); });
            append_in_order();
        }
        keep_the_beginning();
        if (error_) std::rethrow_exception(error_);
        if (no_ranges_) return false;
        if (file_.have() < file_.size()) throw Interrupted();
        return true;
    }

    // One connection from the file's start on, where ranges are not served; what is there already is skipped.
    void run_whole() {
        HttpConnection connection(options_.http);
        const Location location = locate_(connection);
        std::uint64_t position = 0;
        HttpRequest request;
        request.url = location.url;
        request.authorization = location.authorization;
        const HttpAnswer answer = connection.send(request, [&](const HttpAnswer&, std::span<const std::byte> bytes) {
            const std::uint64_t skip = std::min<std::uint64_t>(bytes.size(), file_.have() > position ? file_.have() - position : 0);
            position += bytes.size();
            const auto fresh = bytes.subspan(static_cast<std::size_t>(skip));
            if (fresh.size() > file_.size() - file_.have()) fail(ErrorKind::io, "{}: more than the expected {} bytes arrive", what_, file_.size());
            file_.append(fresh);
            options_.received(fresh.size());
            return true;
        });
        check_status(answer);
        if (file_.have() < file_.size()) throw NetworkError(fmt::format("{}: {} of {} bytes arrived", what_, file_.have(), file_.size()));
    }

  private:
    void stop() {
        std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }

    void append_in_order() {
        std::unique_lock lock(mutex_);
        while (file_.have() < file_.size()) {
            changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return error_ || no_ranges_ || done_.contains(file_.have()); });
            if (error_ || no_ranges_) return;
            if (options_.http.cancelled()) return;
            const auto found = done_.find(file_.have());
            if (found == done_.end()) continue;
            const Bytes bytes = std::move(found->second);
            done_.erase(found);
            lock.unlock();
            file_.append(bytes);
            lock.lock();
            appended_ = file_.have();
            changed_.notify_all();
        }
    }

    // After a stop: whole ranges that had arrived, then the beginning of the one where the gap is.
    void keep_the_beginning() {
        for (auto found = done_.find(file_.have()); found != done_.end(); found = done_.find(file_.have())) file_.append(found->second);
        if (const auto found = begun_.find(file_.have()); found != begun_.end()) file_.append(found->second);
    }

    void work() {
        try {
            HttpConnection connection(stop_options_);
            for (;;) {
                std::uint64_t first;
                {
                    std::unique_lock lock(mutex_);
                    // The window bounds what waits in memory when one range is slow.
                    const std::uint64_t window = options_.range * static_cast<std::uint64_t>(std::max(1, options_.connections));
                    changed_.wait(lock, [&] { return stopping_ || next_ >= file_.size() || next_ < appended_ + window; });
                    if (stopping_ || next_ >= file_.size()) return;
                    first = next_;
                    next_ = std::min(file_.size(), next_ + options_.range);
                }
                fetch_range(connection, first, std::min(file_.size(), first + options_.range));
            }
        } catch (const NoRanges&) {
            std::lock_guard lock(mutex_);
            no_ranges_ = true;
            stopping_ = true;
        } catch (...) {
            std::lock_guard lock(mutex_);
            if (!error_ && !stopping_) error_ = std::current_exception();
            stopping_ = true;
        }
        changed_.notify_all();
    }

    void fetch_range(HttpConnection& connection, std::uint64_t first, std::uint64_t end) {
        Bytes bytes;
        bytes.reserve(static_cast<std::size_t>(end - first));
        struct Keep {
            Transfer& transfer;
            std::uint64_t first;
            Bytes& bytes;
            ~Keep() {
                if (bytes.empty()) return;
                std::lock_guard lock(transfer.mutex_);
                transfer.begun_[first] = std::move(bytes);
            }
        };
        Keep keep{*this, first, bytes};
        int attempt = 1, refreshed = 0;
        while (bytes.size() < end - first) {
            const std::size_t before = bytes.size();
            const Location location = current_location(connection);
            try {
                const int status = request_range(connection, location, first, end, bytes);
                if (status == 401 || status == 403 || status == 410) {
                    if (++refreshed > 2) fail(ErrorKind::io, "{}: {} refuses with status {}", what_, shown_url(location.url), status);
                    forget_location(location);
                    continue;
                }
                // Fewer bytes than announced are a dropped connection.
                if (bytes.size() < end - first) throw NetworkError(fmt::format("{}: the connection ended early", shown_url(location.url)));
            } catch (const NetworkError& error) {
                if (bytes.size() > before) attempt = 1;
                if (attempt >= options_.http.tries) throw NetworkError(fmt::format("{}; what arrived of {} is kept, and the same command goes on from there", error.what(), what_));
                log_debug("{}: {}; going on from byte {}", what_, error.what(), first + bytes.size());
                pause(stop_options_, pause_before(options_.http, attempt++, error.wait));
                if (attempt > 2) forget_location(location);
            }
        }
        std::lock_guard lock(mutex_);
        done_[first] = std::move(bytes);
        bytes.clear();
        changed_.notify_all();
    }

    // Adds what arrives to `bytes`; the status of an answer without them.
    int request_range(HttpConnection& connection, const Location& location, std::uint64_t first, std::uint64_t end, Bytes& bytes) {
        HttpRequest request;
        request.url = location.url;
        request.authorization = location.authorization;
        const std::uint64_t from = first + bytes.size();
        request.headers = {{"Range", fmt::format("bytes={}-{}", from, end - 1)}};
        bool checked = false;
        const HttpAnswer answer = connection.send(request, [&](const HttpAnswer& head, std::span<const std::byte> piece) {
            if (!checked) check_head(head, from, end);
            checked = true;
            if (piece.size() > end - first - bytes.size()) fail(ErrorKind::io, "{}: {} sends more than was asked for", what_, shown_url(location.url));
            bytes.insert(bytes.end(), piece.begin(), piece.end());
            options_.received(piece.size());
            return true;
        });
        throw_if_transient(answer);
        if (answer.status == 401 || answer.status == 403 || answer.status == 410) return answer.status;
        check_status(answer);
        if (!checked) check_head(answer, from, end);  // an empty answer
        return answer.status;
    }

    void check_status(const HttpAnswer& answer) const {
        if (answer.status >= 200 && answer.status < 300) return;
        throw_if_transient(answer);
        if (answer.status == 416) fail(ErrorKind::io, "{}: {} has fewer than the expected {} bytes", what_, shown_url(answer.url), file_.size());
        const std::string why = explanation(answer);
        fail(answer.status == 404 ? ErrorKind::not_found : ErrorKind::io, "{}: {} answers with status {}{}{}", what_, shown_url(answer.url), answer.status,
             why.empty() ? "" : ": ", why);
    }

    void check_head(const HttpAnswer& head, std::uint64_t from, std::uint64_t end) {
        if (head.status == 200) {
            if (from == 0 && end == file_.size()) {
                check_total(head.header("content-length"));
                return;
            }
            throw NoRanges();
        }
        if (head.status != 206) fail(ErrorKind::io, "{}: {} answers a range with status {}", what_, shown_url(head.url), head.status);
        const auto range = parse_content_range(head.header("content-range"));
        if (!range || range->first != from || range->last + 1 > end || range->last < range->first)
            fail(ErrorKind::io, "{}: bytes {}-{} were asked for, and {} answers with \"{}\"", what_, from, end - 1, shown_url(head.url),
                 head.header("content-range").substr(0, 100));
        if (range->total != file_.size())
            fail(ErrorKind::io, "{}: {} bytes are expected, and {} has {}", what_, file_.size(), shown_url(head.url), range->total);
        check_etag(head);
    }

    void check_total(const std::string& length) const {
        if (!length.empty() && length != fmt::format("{}", file_.size()))
            fail(ErrorKind::io, "{}: {} bytes are expected, and the server announces {}", what_, file_.size(), length.substr(0, 30));
    }

    // All ranges must be of one version; the digest would find it too, after everything had arrived.
    void check_etag(const HttpAnswer& head) {
        const std::string etag = head.header("etag");
        if (etag.empty() || etag.starts_with("W/")) return;
        std::lock_guard lock(mutex_);
        if (etag_.empty()) etag_ = etag;
        if (etag_ != etag) fail(ErrorKind::io, "{} changed on the server while it was downloaded (its ETag was {} and is {}); run the command again", what_, etag_.substr(0, 100), etag.substr(0, 100));
    }

    Location current_location(HttpConnection& connection) {
        std::lock_guard lock(location_mutex_);  // others wait for the one that asks
        if (!location_) location_ = locate_(connection);
        return *location_;
    }

    void forget_location(const Location& stale) {
        std::lock_guard lock(location_mutex_);
        if (location_ && location_->url == stale.url && location_->authorization == stale.authorization) location_.reset();
    }

    PartialDownload& file_;
    const std::string& what_;
    const Locate& locate_;
    const DownloadOptions& options_;
    HttpOptions stop_options_;
    const std::uint64_t begin_;

    std::mutex mutex_;  // guards all below
    std::condition_variable changed_;
    std::uint64_t next_;                      // first byte that no worker has taken
    std::uint64_t appended_;                  // file_.have(), for the workers
    std::map<std::uint64_t, Bytes> done_;     // whole ranges by first byte, not yet appended
    std::map<std::uint64_t, Bytes> begun_;    // what arrived of a range that was given up
    std::exception_ptr error_;
    bool no_ranges_ = false;
    std::atomic<bool> stopping_{false};
    std::string etag_;

    std::mutex location_mutex_;
    std::optional<Location> location_;
};

void transfer(PartialDownload& file, const std::string& what, const Locate& locate, const DownloadOptions& options) {
    if (file.have() == file.size()) return;
    if (Transfer(file, what, locate, options).run()) return;
    log_debug("{}: the server serves no ranges; going on over one connection", what);
    for (int attempt = 1;; ++attempt) {
        const std::uint64_t before = file.have();
        try {
            Transfer(file, what, locate, options).run_whole();
            return;
        } catch (const NetworkError& error) {
            if (file.have() > before) attempt = 1;
            if (attempt >= options.http.tries) throw;
            pause(options.http, pause_before(options.http, attempt, error.wait));
        }
    }
}

}  // namespace

void download(PartialDownload& file, const std::string& what, const Locate& locate, const DownloadOptions& options) {
    transfer(file, what, locate, options);
    if (file.finish()) return;
    log_warn("{}: the bytes that arrived are not those of {}; downloading them once more", what, file.digest().text());
    transfer(file, what, locate, options);
    if (!file.finish())
        fail(ErrorKind::io, "{}: the server sends bytes that are not those of {}, twice; nothing of them was kept", what, file.digest().text());
}

}  // namespace forge
