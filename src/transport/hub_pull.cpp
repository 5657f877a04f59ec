#include "transport/hub_pull.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "base/paths.h"
#include "base/progress.h"
#include "base/text.h"
#include "transport/credentials.h"
#include "transport/file_lock.h"
#include "transport/hub_answers.h"
#include "transport/hub_choose.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

std::string endpoint_of(const HubPullOptions& options) {
    std::string endpoint = options.endpoint.empty() ? environment("HF_ENDPOINT") : options.endpoint;
    if (endpoint.empty()) endpoint = "https://huggingface.co";
    while (endpoint.ends_with('/')) endpoint.pop_back();
    return endpoint;
}

class Puller {
  public:
    Puller(const HubCache& cache, const HubReference& reference, const HubPullOptions& options)
        : cache_(cache), reference_(reference), options_(options), endpoint_(endpoint_of(options)), connection_(options.download.http) {
        const Url url = parse_url(endpoint_);
        host_ = url.port == 443 || url.port == 80 ? url.host : fmt::format("{}:{}", url.host, url.port);
        if (const std::string token = hub_token(host_); !token.empty()) authorization_ = "Bearer " + token;
    }

    HubPulled pull() {
        HubPulled result;
        commit_ = find_commit();
        result.commit = commit_;
        const std::vector<HubFile> all = list_files();
        const std::vector<HubFile> wanted = choose(all);
        for (const HubFile& file : wanted) result.bytes += file.size;
        result.files = static_cast<int>(wanted.size());

        std::vector<HubFile> absent;
        for (const HubFile& file : wanted)
            if (!in_cache(file)) absent.push_back(file);
        for (const HubFile& file : absent) result.fetched_bytes += file.size;
        result.fetched = static_cast<int>(absent.size());
        Progress progress(reference_.text(), result.fetched_bytes);
        for (const HubFile& file : absent) fetch(file, progress);
        for (const HubFile& file : wanted) cache_.link(reference_.repo, commit_, file.path, file.digest.hex);
        // Last: until here the revision still leads to what was pulled before.
        cache_.write_ref(reference_.repo, reference_.revision, commit_);
        result.path = options_.include.empty() ? find_in_hub_cache(cache_, reference_) : cache_.snapshot(reference_.repo, commit_);
        return result;
    }

  private:
    std::string api(const std::string& what) const { return fmt::format("{}/api/models/{}/{}", endpoint_, url_encode(reference_.repo, true), what); }

    HttpAnswer ask(const std::string& url) {
        HttpRequest request;
        request.url = url;
        request.authorization = authorization_;
        HttpAnswer answer = connection_.send_retrying(request);
        check(answer);
        return answer;
    }

    // Refusals with what to do about them.
    void check(const HttpAnswer& answer) const {
        if (answer.status >= 200 && answer.status < 400) return;
        const std::string said = explanation(answer), why = said.empty() ? "" : " (" + said + ")";
        const std::string code = answer.header("x-error-code");
        if (code == "GatedRepo" || answer.status == 403)
            fail(ErrorKind::io, "{} is only given to those who accepted its conditions{}; accept them on its page on {}, and give a token with "
                 "HF_TOKEN or forge login {}", reference_.text(), why, host_, host_);
        if (code == "RevisionNotFound")
            fail(ErrorKind::not_found, "hf:{} has no revision {}{}", reference_.repo, reference_.revision, why);
        if (answer.status == 401)
            fail(ErrorKind::not_found, "{} does not exist on {}, or it is private{}; {}", reference_.text(), host_, why,
                 authorization_.empty() ? fmt::format("for a private one give a token with HF_TOKEN or forge login {}", host_)
                                        : std::string("the token that was given is not accepted for it"));
        if (answer.status == 404) fail(ErrorKind::not_found, "{} does not exist on {}{}", reference_.text(), host_, why);
        fail(ErrorKind::io, "{} answers with status {}{}", shown_url(answer.url), answer.status, why);
    }

    std::string find_commit() {
        const HttpAnswer answer = ask(api("revision/" + url_encode(reference_.revision)));
        return read_revision_answer(answer.body, shown_url(answer.url));
    }

    std::vector<HubFile> list_files() {
        std::vector<HubFile> files;
        Url url = parse_url(api(fmt::format("tree/{}?recursive=true", commit_)));
        for (int pages = 0;; ++pages) {
            if (pages == 1000) fail("{}: the list of files does not end", shown_url(url.text()));
            const HttpAnswer answer = ask(url.text());
            read_tree_answer(answer.body, shown_url(answer.url), files);
            const auto next = next_page(answer.header("link"));
            if (!next) return files;
            const Url target = resolve_url(parse_url(answer.url), *next);
            if (!target.same_origin(url)) fail("{}: the list of files goes on at another host, {}", shown_url(url.text()), target.origin());
            url = target;
        }
    }

    std::vector<HubFile> choose(const std::vector<HubFile>& all) {
        std::vector<std::string> names;
        for (const HubFile& file : all) names.push_back(file.path);
        std::vector<std::string> chosen;
        if (!options_.include.empty()) {
            for (const std::string& name : names)
                if (std::any_of(options_.include.begin(), options_.include.end(), [&](const std::string& pattern) { return matches_glob(pattern, name); }))
                    chosen.push_back(name);
            if (chosen.empty()) fail(ErrorKind::not_found, "no file of {} matches {}", reference_.text(), fmt::join(options_.include, " or "));
        } else if (!reference_.select.empty() || !has_folder_model(names)) {
            chosen = choose_gguf(names, reference_);
            if (const std::string part = missing_gguf_part(chosen); !part.empty()) fail("{} has no file {}", reference_.text(), part);
        } else {
            std::copy_if(names.begin(), names.end(), std::back_inserter(chosen), is_companion);
            for (const std::string& name : weights(all, names)) chosen.push_back(name);
        }
        std::vector<HubFile> files;
        for (const HubFile& file : all)
            if (std::find(chosen.begin(), chosen.end(), file.path) != chosen.end()) files.push_back(file);
        // Small files first: what is wrong with a model shows before gigabytes were fetched.
        std::stable_sort(files.begin(), files.end(), [](const HubFile& a, const HubFile& b) { return a.size < b.size; });
        return files;
    }

    std::vector<std::string> weights(const std::vector<HubFile>& all, const std::vector<std::string>& names) {
        const auto index = std::find_if(all.begin(), all.end(), [](const HubFile& file) { return file.path == kSafetensorsIndex; });
        if (index == all.end()) return choose_safetensors(names);
        if (!in_cache(*index)) {
            Progress progress(index->path, index->size);
            fetch(*index, progress);
        }
        const std::vector<std::string> files = files_of_index(read_file(cache_.blob(reference_.repo, index->digest.hex)), index->path);
        for (const std::string& file : files)
            if (std::find(names.begin(), names.end(), file) == names.end())
                fail("{}: {} lists {}, and the repository does not hold it", reference_.text(), kSafetensorsIndex, file);
        return files;
    }

    bool in_cache(const HubFile& file) const {
        std::error_code error;
        const fs::path blob = cache_.blob(reference_.repo, file.digest.hex);
        return fs::is_regular_file(blob, error) && fs::file_size(blob, error) == file.size && !error;
    }

    void fetch(const HubFile& file, Progress& progress) {
        const std::string& name = file.digest.hex;
        const fs::path blob = cache_.blob(reference_.repo, name), partial = blob.string() + ".incomplete";
        std::error_code error;
        fs::create_directories(blob.parent_path(), error);
        if (error) fail(ErrorKind::io, "cannot create {}: {}", blob.parent_path().string(), error.message());
        const FileLock lock(cache_.lock_file(reference_.repo, name), file.path, options_.download.http.cancelled);
        if (in_cache(file)) {  // another process brought it
            PartialDownload::ranges_of(partial).remove();  // or another tool, which knows nothing of these
            progress.skip(file.size);
            return;
        }
        const auto start = std::chrono::steady_clock::now();
        PartialDownload incomplete(partial, file.size, file.digest);
        std::uint64_t before = 0;
        DownloadOptions how = options_.download;
        how.found = [&](std::uint64_t bytes) {
            before = bytes;
            progress.skip(bytes);
            if (bytes > 0) log_info("{}: going on from {} of {}", file.path, format_bytes(bytes), format_bytes(file.size));
        };
        how.received = [&](std::uint64_t bytes) { progress.advance(bytes); };
        download(incomplete, file.path, [&](HttpConnection& connection) { return locate(connection, file); }, how);
        fs::rename(partial, blob, error);
        if (error) fail(ErrorKind::io, "cannot put {} in place: {}", blob.string(), error.message());
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        log_info("{}: {} in {:.1f} s, {}/s", file.path, format_bytes(file.size), seconds,
                 format_bytes(static_cast<std::uint64_t>(static_cast<double>(file.size - before) / std::max(seconds, 1e-3))));
    }

    // Where a file's bytes are: at the hub itself, or where it redirects to, often with a signature that expires.
    Location locate(HttpConnection& connection, const HubFile& file) const {
        HttpRequest request;
        request.method = "HEAD";
        request.url = fmt::format("{}/{}/resolve/{}/{}", endpoint_, url_encode(reference_.repo, true), commit_, url_encode(file.path, true));
        request.authorization = authorization_;
        request.follow = HttpRequest::Follow::same_host;  // a renamed repository redirects on the hub
        const HttpAnswer answer = connection.send_retrying(request);
        check(answer);
        const std::string linked = answer.header("x-linked-etag");
        const std::string etag = plain_etag(linked.empty() ? answer.header("etag") : linked);
        if ((is_lower_hex(etag, 40) || is_lower_hex(etag, 64)) && etag != file.digest.hex)
            fail(ErrorKind::io, "{}: the hub lists it as {} and serves {}; run the command again", file.path, file.digest.hex, etag);
        const std::string redirect = answer.status >= 300 ? answer.header("location") : std::string();
        if (redirect.empty()) return {answer.url, authorization_};
        const Url there = resolve_url(parse_url(answer.url), redirect);
        if (parse_url(answer.url).scheme == "https" && there.scheme == "http")
            fail(ErrorKind::io, "{}: {} redirects from an encrypted connection to an open one, {}, which is not followed", file.path, host_, there.origin());
        return {there.text(), ""};
    }

    const HubCache& cache_;
    const HubReference& reference_;
    const HubPullOptions& options_;
    std::string endpoint_, host_, authorization_, commit_;
    HttpConnection connection_;
};

}  // namespace

HubPulled pull_from_hub(const HubCache& cache, const HubReference& reference, HubPullOptions options) {
    require_transport();
    const std::string offline = environment("HF_HUB_OFFLINE");
    if (offline == "1" || offline == "ON" || offline == "YES" || offline == "TRUE")
        fail("HF_HUB_OFFLINE is set, so nothing is fetched; without it, forge pull {} goes to the network", reference.text());
    return Puller(cache, reference, options).pull();
}

}  // namespace forge
