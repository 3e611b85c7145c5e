#include <troupe/processes/store/http_client.hpp>

#include <troupe/device/error.hpp>

#if TROUPE_HAS_CURL
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include <dlfcn.h>
#endif

#include <cstddef>
#include <fstream>
#include <memory>
#include <utility>

namespace troupe {

#if TROUPE_HAS_CURL

namespace {

#undef curl_easy_setopt
#undef curl_easy_getinfo

constexpr const char* soname = "libcurl.so.4";
constexpr std::size_t most_of_answer = 16U << 20U;

struct curl_functions {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_reset) easy_reset = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
};

template <class Function>
void find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  if (function == nullptr) throw exception{errc::too_old, std::string{soname} + " has no " + symbol + ": upgrade it"};
}

/// Opens the library and never closes it: it may have registered handlers of the process's end.
curl_functions open_curl() {
  void* const library = ::dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw exception{errc::missing, std::string{"a store needs "} + soname +
                                       ", which is not installed: on Debian and Ubuntu, apt-get install libcurl4"};
  curl_functions made;
  find(library, "curl_global_init", made.global_init);
  find(library, "curl_easy_init", made.easy_init);
  find(library, "curl_easy_reset", made.easy_reset);
  find(library, "curl_easy_setopt", made.easy_setopt);
  find(library, "curl_easy_perform", made.easy_perform);
  find(library, "curl_easy_getinfo", made.easy_getinfo);
  find(library, "curl_easy_strerror", made.easy_strerror);
  find(library, "curl_easy_cleanup", made.easy_cleanup);
  find(library, "curl_slist_append", made.slist_append);
  find(library, "curl_slist_free_all", made.slist_free_all);
  if (made.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw exception{errc::missing, "libcurl cannot be used"};
  return made;
}

const curl_functions& curl() {
  static const curl_functions opened = open_curl();
  return opened;
}

std::size_t take(char* bytes, std::size_t size, std::size_t count, void* into) noexcept {
  auto& text = *static_cast<std::string*>(into);
  if (text.size() + size * count > most_of_answer) return 0; // ends the request
  try {
    text.append(bytes, size * count);
  } catch (...) {
    return 0;
  }
  return size * count;
}

std::string bearer_of(const std::string& file) {
  std::string token;
  std::getline(std::ifstream{file}, token);
  return token;
}

} // namespace

struct http_client::parts {
  explicit parts(http_options wanted) : options{std::move(wanted)}, library{curl()}, handle{library.easy_init()} {
    if (handle == nullptr) throw exception{errc::out_of_memory, "libcurl has no memory"};
  }
  ~parts() { library.easy_cleanup(handle); }

  template <class Value>
  void set(CURLoption option, Value value) {
    if (library.easy_setopt(handle, option, value) != CURLE_OK)
      throw exception{errc::too_old, "this libcurl does not know option " + std::to_string(option) + ": upgrade it"};
  }

  const http_options options;
  const curl_functions& library;
  CURL* const handle;
};

http_client::http_client(http_options options) : parts_{std::make_unique<parts>(std::move(options))} {}

http_client::~http_client() = default;

http_response http_client::send(const char* method, const std::string& url, const std::string& body,
                                const std::vector<std::string>& headers) {
  parts& with = *parts_;
  const http_options& options = with.options;
  http_response answer;
  with.library.easy_reset(with.handle); // keeps its connections
  with.set(CURLOPT_URL, url.c_str());
  with.set(CURLOPT_CUSTOMREQUEST, method);
  if (!body.empty()) {
    with.set(CURLOPT_POSTFIELDS, body.data());
    with.set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  }
  with.set(CURLOPT_NOSIGNAL, 1L); // there are other threads
  with.set(CURLOPT_NOPROXY, "*");
  with.set(CURLOPT_TIMEOUT_MS, static_cast<long>(options.timeout.count()));
  with.set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.timeout.count()));
  with.set(CURLOPT_WRITEFUNCTION, &take);
  with.set(CURLOPT_WRITEDATA, static_cast<void*>(&answer.body));
  if (!options.ca_file.empty()) with.set(CURLOPT_CAINFO, options.ca_file.c_str());
  if (!options.certificate_file.empty()) {
    with.set(CURLOPT_SSLCERT, options.certificate_file.c_str());
    with.set(CURLOPT_SSLKEY, options.key_file.c_str());
  }
  std::vector<std::string> lines{"Content-Type: application/json", "Expect:"};
  lines.insert(lines.end(), headers.begin(), headers.end());
  if (!options.bearer_file.empty()) lines.push_back("Authorization: Bearer " + bearer_of(options.bearer_file));
  curl_slist* list = nullptr;
  const auto free_all = [&with](curl_slist* all) { with.library.slist_free_all(all); };
  std::unique_ptr<curl_slist, decltype(free_all)> owned{nullptr, free_all};
  for (const std::string& line : lines) {
    list = with.library.slist_append(list, line.c_str());
    static_cast<void>(owned.release());
    owned.reset(list);
  }
  with.set(CURLOPT_HTTPHEADER, list);
  if (const CURLcode result = with.library.easy_perform(with.handle); result != CURLE_OK)
    throw exception{errc::missing, url + ": " + with.library.easy_strerror(result)};
  long status = 0;
  with.library.easy_getinfo(with.handle, CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  return answer;
}

#else

struct http_client::parts {};

http_client::http_client(http_options) {
  throw exception{errc::unsupported, "this troupe was built without libcurl, which a store needs: install its header "
                                     "(on Debian and Ubuntu, apt-get install libcurl4-openssl-dev) and build again"};
}

http_client::~http_client() = default;

http_response http_client::send(const char*, const std::string&, const std::string&, const std::vector<std::string>&) {
  return {};
}

#endif

} // namespace troupe
