#include "evenkeel/layer/dense_reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <numbers>
#include <system_error>
#include <thread>

#include "evenkeel/base/cores.h"
#include "evenkeel/device/cpu/vector_isa.h"
#include "evenkeel/layer/internal/dense_kernels.h"

namespace evenkeel {

namespace internal {
namespace baseline {
extern const DenseKernels dense_kernels;
}
namespace avx2 {
extern const DenseKernels dense_kernels;
}
namespace avx512 {
extern const DenseKernels dense_kernels;
}
}  // namespace internal

namespace {

using Matrix = std::vector<double>;

void multiply_edge(std::int64_t rows, std::int64_t columns, std::int64_t K, std::int64_t N, const double* a,
                   const double* b, double* c) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < K; ++k) sum += a[i * K + k] * b[k * N + j];
      c[i * N + j] += sum;
    }
}

// c[M, N] += a[M, K] b[K, N], row-major. A panel of b's columns stays in the cache for all rows of a.
void multiply_dense(std::int64_t M, std::int64_t N, std::int64_t K, const Matrix& a, const Matrix& b,
                    Matrix& c) {
  static const internal::DenseKernels& best = vector::best_of(
      internal::baseline::dense_kernels, internal::avx2::dense_kernels, internal::avx512::dense_kernels);
  for (std::int64_t j = 0; j < N; j += best.columns)
    for (std::int64_t i = 0; i < M; i += best.rows) {
      const double* const rows = a.data() + i * K;
      double* const block = c.data() + i * N + j;
      if (i + best.rows <= M && j + best.columns <= N)
        best.multiply_block(K, N, rows, b.data() + j, block);
      else
        multiply_edge(std::min(best.rows, M - i), std::min(best.columns, N - j), K, N, rows, b.data() + j,
                      block);
    }
}

std::size_t area(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

double element(const void* data, std::int64_t index, DataType type) {
  if (type == DataType::f32) return static_cast<double>(static_cast<const float*>(data)[index]);
  return static_cast<double>(static_cast<float>(static_cast<const bf16*>(data)[index]));
}

Matrix widen(const void* data, std::int64_t count, DataType type) {
  Matrix wide(area(count, 1));
  for (std::int64_t i = 0; i < count; ++i) wide[area(i, 1)] = element(data, i, type);
  return wide;
}

Matrix product(std::int64_t M, std::int64_t N, std::int64_t K, const Matrix& a, const Matrix& b) {
  Matrix c(area(M, N));
  multiply_dense(M, N, K, a, b, c);
  return c;
}

Matrix transposed(const Matrix& in, std::int64_t rows, std::int64_t columns) {
  Matrix out(in.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      out[area(c, rows) + area(r, 1)] = in[area(r, columns) + area(c, 1)];
  return out;
}

// Rows of an expert that are evaluated together: enough work for a core, few enough for its cache.
constexpr std::size_t kPieceRows = 1024;

// h, and its derivatives with respect to gate and up.
struct Activated {
  double h, by_gate, by_up;
};

Activated activate(Activation activation, double gate, double up) {
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  switch (activation) {
    case Activation::swiglu: {
      const double s = sigmoid(gate);
      return {gate * s * up, up * s * (1.0 + gate * (1.0 - s)), gate * s};
    }
    case Activation::clamped_swiglu: {
      constexpr double kLimit = 7.0;
      constexpr double kAlpha = 1.702f;  // the model defines this constant in f32
      const double g = std::min(gate, kLimit);
      const double u = std::clamp(up, -kLimit, kLimit);
      const double s = sigmoid(kAlpha * g);
      return {g * s * (u + 1.0), gate <= kLimit ? (u + 1.0) * s * (1.0 + kAlpha * g * (1.0 - s)) : 0.0,
              std::abs(up) <= kLimit ? g * s : 0.0};
    }
    case Activation::gelu: {
      const double phi = 0.5 * std::erfc(-up / std::numbers::sqrt2);
      const double density = std::exp(-0.5 * up * up) / std::sqrt(2.0 * std::numbers::pi);
      return {up * phi, 0.0, phi + up * density};
    }
  }
  return {};
}

class Evaluation {
 public:
  Evaluation(const ExpertShape& shape, std::span<const ExpertWeights> weights, ConstRows hidden,
             const TopK& top_k, ConstRows grad_output)
      : shape_(shape), weights_(weights), hidden_(hidden), top_k_(top_k), grad_output_(grad_output) {
    result_.output.resize(area(top_k.tokens, D()));
    if (!backward()) return;
    result_.grad_hidden.resize(area(top_k.tokens, D()));
    result_.grad_router_weights.resize(top_k.experts.size());
    result_.grad_experts.resize(weights.size());
  }

  DenseResult run() {
    cut_into_pieces();
    {
      std::vector<std::jthread> others;
      try {
        for (int i = 1, cores = usable_cores(); i < cores; ++i)
          others.emplace_back([this] { evaluate_pieces(); });
      } catch (const std::system_error&) {  // no more threads available: the existing ones do all the work
      }
      evaluate_pieces();
    }
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
    return std::move(result_);
  }

 private:
  // Runs on several threads. run() rethrows the first exception once all threads have ended.
  void evaluate_pieces() {
    try {
      for (std::size_t piece = next_++; piece < pieces_.size(); piece = next_++) evaluate(pieces_[piece]);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (thrown_ == nullptr) thrown_ = std::current_exception();
      next_ = pieces_.size();
    }
  }

  std::int64_t D() const { return shape_.hidden; }
  std::int64_t F() const { return shape_.intermediate; }
  std::int64_t W() const { return shape_.gate_up_rows(); }
  bool backward() const { return grad_output_.data != nullptr; }

  // Some of one expert's rows, one row per assignment.
  struct Batch {
    std::size_t expert = 0;
    std::vector<std::size_t> assignments;
    std::int64_t rows = 0;
    Matrix x = {}, pre = {}, h = {}, y = {};
  };

  void cut_into_pieces() {
    std::vector<std::vector<std::size_t>> of_expert(weights_.size());
    for (std::size_t a = 0; a < top_k_.experts.size(); ++a)
      if (const std::int32_t id = top_k_.experts[a];
          id >= 0 && static_cast<std::size_t>(id) < weights_.size())
        of_expert[static_cast<std::size_t>(id)].push_back(a);
    for (std::size_t expert = 0; expert < weights_.size(); ++expert) {
      const std::span all(of_expert[expert]);
      for (std::size_t first = 0; first < all.size(); first += kPieceRows) {
        const auto some = all.subspan(first, std::min(kPieceRows, all.size() - first));
        pieces_.push_back({expert, {some.begin(), some.end()}, std::ssize(some)});
      }
    }
  }

  std::int64_t token_of(const Batch& batch, std::int64_t row) const {
    return static_cast<std::int64_t>(batch.assignments[area(row, 1)]) / top_k_.k;
  }
  double weight_of(const Batch& batch, std::int64_t row) const {
    return static_cast<double>(top_k_.weights[batch.assignments[area(row, 1)]]);
  }
  Matrix rows_of(const Batch& batch, ConstRows by_token) const {
    Matrix rows(area(batch.rows, D()));
    for (std::int64_t r = 0; r < batch.rows; ++r)
      for (std::int64_t d = 0; d < D(); ++d)
        rows[area(r, D()) + area(d, 1)] = element(by_token.data, token_of(batch, r) * D() + d, by_token.type);
    return rows;
  }

  Activated activated(const Batch& batch, std::int64_t row, std::int64_t f) const {
    const double* pre = batch.pre.data() + row * W();
    return activate(shape_.activation, pre[f], shape_.activation == Activation::gelu ? pre[f] : pre[F() + f]);
  }

  void evaluate(Batch& batch) {
    forward(batch);
    if (backward()) differentiate(batch);
    batch = {};
  }

  void start_at_bias(Matrix& rows, std::int64_t count, std::int64_t width, const void* bias) const {
    rows.assign(area(count, width), 0.0);
    if (!shape_.biases) return;
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = element(bias, static_cast<std::int64_t>(i) % width, shape_.type);
  }

  void forward(Batch& batch) {
    const ExpertWeights& weights = weights_[batch.expert];
    const Matrix gate_up = transposed(widen(weights.gate_up, W() * D(), shape_.type), W(), D());
    const Matrix down = transposed(widen(weights.down, D() * F(), shape_.type), D(), F());
    batch.x = rows_of(batch, hidden_);
    start_at_bias(batch.pre, batch.rows, W(), weights.gate_up_bias);
    multiply_dense(batch.rows, W(), D(), batch.x, gate_up, batch.pre);
    batch.h.resize(area(batch.rows, F()));
    for (std::int64_t r = 0; r < batch.rows; ++r)
      for (std::int64_t f = 0; f < F(); ++f) batch.h[area(r, F()) + area(f, 1)] = activated(batch, r, f).h;
    start_at_bias(batch.y, batch.rows, D(), weights.down_bias);
    multiply_dense(batch.rows, D(), F(), batch.h, down, batch.y);

    const std::lock_guard lock(mutex_);
    for (std::int64_t r = 0; r < batch.rows; ++r)
      for (std::int64_t d = 0; d < D(); ++d)
        result_.output[area(token_of(batch, r), D()) + area(d, 1)] +=
            weight_of(batch, r) * batch.y[area(r, D()) + area(d, 1)];
  }

  void differentiate(const Batch& batch) {
    Matrix grad_y = rows_of(batch, grad_output_);
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      double dot = 0;
      for (std::int64_t d = 0; d < D(); ++d) {
        double& g = grad_y[area(r, D()) + area(d, 1)];
        dot += g * batch.y[area(r, D()) + area(d, 1)];
        g *= weight_of(batch, r);
      }
      result_.grad_router_weights[batch.assignments[area(r, 1)]] = dot;
    }
    const ExpertWeights& weights = weights_[batch.expert];
    const Matrix grad_h = product(batch.rows, F(), D(), grad_y, widen(weights.down, D() * F(), shape_.type));
    Matrix grad_pre(area(batch.rows, W()));
    for (std::int64_t r = 0; r < batch.rows; ++r)
      for (std::int64_t f = 0; f < F(); ++f) {
        const Activated slope = activated(batch, r, f);
        const double g = grad_h[area(r, F()) + area(f, 1)];
        double* pre = grad_pre.data() + r * W();
        if (shape_.activation != Activation::gelu) pre[f] = g * slope.by_gate;
        pre[W() - F() + f] = g * slope.by_up;
      }
    const Matrix grad_x =
        product(batch.rows, D(), W(), grad_pre, widen(weights.gate_up, W() * D(), shape_.type));
    DenseResult::Expert grad;
    grad.gate_up = product(W(), D(), batch.rows, transposed(grad_pre, batch.rows, W()), batch.x);
    grad.down = product(D(), F(), batch.rows, transposed(grad_y, batch.rows, D()), batch.h);
    if (shape_.biases) {
      add_columns(grad_pre, W(), grad.gate_up_bias);
      add_columns(grad_y, D(), grad.down_bias);
    }
    const std::lock_guard lock(mutex_);
    for (std::int64_t r = 0; r < batch.rows; ++r)
      for (std::int64_t d = 0; d < D(); ++d)
        result_.grad_hidden[area(token_of(batch, r), D()) + area(d, 1)] += grad_x[area(r, D()) + area(d, 1)];
    DenseResult::Expert& sums = result_.grad_experts[batch.expert];
    using Expert = DenseResult::Expert;
    for (const auto part : {&Expert::gate_up, &Expert::down, &Expert::gate_up_bias, &Expert::down_bias})
      add(std::move(grad.*part), sums.*part);
  }

  static void add(Matrix values, Matrix& sums) {
    if (sums.empty())
      sums = std::move(values);
    else
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  static void add_columns(const Matrix& rows, std::int64_t width, Matrix& sums) {
    sums.assign(area(width, 1), 0.0);
    for (std::size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += rows[i];
  }

  ExpertShape shape_;
  std::span<const ExpertWeights> weights_;
  ConstRows hidden_;
  TopK top_k_;
  ConstRows grad_output_;
  DenseResult result_;
  std::vector<Batch> pieces_;
  std::mutex mutex_;  // guards sums that several pieces add to, and thrown_
  std::atomic<std::size_t> next_ = 0;
  std::exception_ptr thrown_;
};

}  // namespace

DenseResult evaluate_dense(const ExpertShape& shape, std::span<const ExpertWeights> weights, ConstRows hidden,
                           const TopK& top_k, ConstRows grad_output) {
  return Evaluation(shape, weights, hidden, top_k, grad_output).run();
}

}  // namespace evenkeel
