"""Sixty formulas as models write them in answers, with their delimiters: what must be typeset without a fallback."""

from __future__ import annotations

FORMULAS: tuple[str, ...] = (
    # Algebra and calculus
    r"$$x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$$",
    r"$a^2 + b^2 = c^2$",
    r"\[ f'(x) = \lim_{h \to 0} \frac{f(x+h) - f(x)}{h} \]",
    r"$$\int_{-\infty}^{\infty} e^{-x^2} \, dx = \sqrt{\pi}$$",
    r"$$\sum_{n=1}^{\infty} \frac{1}{n^2} = \frac{\pi^2}{6}$$",
    r"$$e^{i\pi} + 1 = 0$$",
    r"$$\frac{d}{dx}\left[\int_{a(x)}^{b(x)} f(x,t)\,dt\right] = f\big(x,b(x)\big)\,b'(x) - f\big(x,a(x)\big)\,a'(x)$$",
    r"$$f(x) = \sum_{n=0}^{\infty} \frac{f^{(n)}(a)}{n!} (x-a)^n$$",
    r"$$\oint_{\partial S} \mathbf{F} \cdot d\mathbf{r} = \iint_S (\nabla \times \mathbf{F}) \cdot d\mathbf{S}$$",
    r"$$\left. \frac{\partial f}{\partial x} \right|_{x=0} = 2$$",
    r"$$\sqrt[3]{\frac{x^3 + y^3}{2}} \ge \sqrt{xy}$$",
    r"$$\prod_{p \text{ prime}} \frac{1}{1 - p^{-s}} = \zeta(s)$$",
    r"\begin{align} (a+b)^2 &= (a+b)(a+b) \\ &= a^2 + 2ab + b^2 \end{align}",
    r"$$\begin{aligned} \nabla \cdot \mathbf{E} &= \frac{\rho}{\varepsilon_0} \\ \nabla \cdot \mathbf{B} &= 0 \\ "
    r"\nabla \times \mathbf{E} &= -\frac{\partial \mathbf{B}}{\partial t} \\ "
    r"\nabla \times \mathbf{B} &= \mu_0 \mathbf{J} + \mu_0 \varepsilon_0 \frac{\partial \mathbf{E}}{\partial t} "
    r"\end{aligned}$$",
    r"$$a_0 + \cfrac{1}{a_1 + \cfrac{1}{a_2 + \cfrac{1}{a_3 + \cdots}}}$$",
    r"$$\boxed{x = 42}$$",
    r"$$\underbrace{1 + 2 + \cdots + n}_{n \text{ terms}} = \frac{n(n+1)}{2}$$",
    # Linear algebra
    r"$$A = \begin{pmatrix} a & b \\ c & d \end{pmatrix}, \quad \det A = ad - bc$$",
    r"$$\begin{bmatrix} 1 & 0 & \cdots & 0 \\ 0 & 1 & \cdots & 0 \\ \vdots & \vdots & \ddots & \vdots \\ "
    r"0 & 0 & \cdots & 1 \end{bmatrix}$$",
    r"$$\begin{vmatrix} \mathbf{i} & \mathbf{j} & \mathbf{k} \\ a_1 & a_2 & a_3 \\ b_1 & b_2 & b_3 \end{vmatrix}$$",
    r"$$\|\mathbf{x}\|_2 = \sqrt{\sum_{i=1}^{n} x_i^2}$$",
    r"$$A\mathbf{v} = \lambda\mathbf{v} \iff \det(A - \lambda I) = 0$$",
    r"$$A = U \Sigma V^{\top}$$",
    r"$$\left[\begin{array}{cc|c} 1 & 2 & 3 \\ 4 & 5 & 6 \end{array}\right]$$",
    r"$\langle u, v \rangle = \overline{\langle v, u \rangle}$",
    r"$\mathbb{R}^n \otimes \mathbb{C}^m \cong \mathbb{C}^{nm}$",
    # Statistics
    r"$$P(A \mid B) = \frac{P(B \mid A)\,P(A)}{P(B)}$$",
    r"$$f(x) = \frac{1}{\sigma\sqrt{2\pi}} \exp\left(-\frac{(x-\mu)^2}{2\sigma^2}\right)$$",
    r"$$\binom{n}{k} = \frac{n!}{k!\,(n-k)!}$$",
    r"$$\hat{\beta} = (X^{\mathsf{T}} X)^{-1} X^{\mathsf{T}} y$$",
    r"$$\operatorname{Var}(X) = \mathbb{E}[X^2] - (\mathbb{E}[X])^2$$",
    r"$$\bar{x} \pm t_{\alpha/2,\,n-1} \cdot \frac{s}{\sqrt{n}}$$",
    r"$$\chi^2 = \sum_{i} \frac{(O_i - E_i)^2}{E_i}$$",
    r"$X_1, \dots, X_n \overset{\text{iid}}{\sim} \mathcal{N}(\mu, \sigma^2)$",
    # Physics
    r"$$i\hbar \frac{\partial}{\partial t} \Psi(\mathbf{r}, t) = \left[ -\frac{\hbar^2}{2m} \nabla^2 + "
    r"V(\mathbf{r}, t) \right] \Psi(\mathbf{r}, t)$$",
    r"$E = mc^2$",
    r"$$R_{\mu\nu} - \tfrac{1}{2} R g_{\mu\nu} + \Lambda g_{\mu\nu} = \frac{8\pi G}{c^4} T_{\mu\nu}$$",
    r"$$\vec{F} = m\vec{a} = m\ddot{\vec{x}}$$",
    r"$$\gamma = \frac{1}{\sqrt{1 - v^2/c^2}}$$",
    r"$$\langle \psi | \hat{H} | \psi \rangle = E_0$$",
    r"$F = 6.674 \times 10^{-11}\ \mathrm{N\,m^2\,kg^{-2}} \cdot \frac{m_1 m_2}{r^2}$",
    r"$v \approx 3 \times 10^8\,\text{m/s}$",
    # Chemistry
    r"$$\mathrm{2H_2 + O_2 \rightarrow 2H_2O}$$",
    r"$$\mathrm{CH_3COOH} \rightleftharpoons \mathrm{CH_3COO^-} + \mathrm{H^+}$$",
    r"$$\mathrm{pH} = \mathrm{p}K_a + \log_{10} \frac{[\mathrm{A}^-]}{[\mathrm{HA}]}$$",
    r"$$A \xrightarrow{\Delta,\ \text{cat.}} B$$",
    r"$^{14}_{6}\mathrm{C} \to {}^{14}_{7}\mathrm{N} + e^- + \bar{\nu}_e$",
    # Logic and sets
    r"$\forall \varepsilon > 0 \; \exists \delta > 0 : |x - a| < \delta \implies |f(x) - L| < \varepsilon$",
    r"$\neg (P \land Q) \equiv \neg P \lor \neg Q$",
    r"$A \cup B = \{ x \mid x \in A \text{ or } x \in B \}$",
    r"$A \subseteq B \setminus C, \quad x \notin \emptyset$",
    r"$$f(x) = \begin{cases} x^2 & \text{if } x \geq 0, \\ -x & \text{otherwise.} \end{cases}$$",
    r"$\lfloor x \rfloor \le x < \lceil x \rceil + 1 \pmod{n}$",
    # Machine learning and computing
    r"$$\operatorname{Attention}(Q, K, V) = \operatorname{softmax}\left(\frac{QK^{\top}}{\sqrt{d_k}}\right) V$$",
    r"$$\mathcal{L}(\theta) = -\frac{1}{N} \sum_{i=1}^{N} \sum_{c=1}^{C} y_{i,c} \log \hat{y}_{i,c}$$",
    r"$$\theta^* = \underset{\theta}{\arg\min}\; \mathcal{L}(\theta)$$",
    r"$$\text{softmax}(z)_i = \frac{e^{z_i}}{\sum_{j=1}^{K} e^{z_j}}$$",
    r"$$D_{\text{KL}}(P \,\|\, Q) = \sum_{x \in \mathcal{X}} P(x) \log\!\left(\frac{P(x)}{Q(x)}\right)$$",
    r"$$\max_{\pi} \; \mathbb{E}_{\tau \sim \pi} \left[ \sum_{t=0}^{T} \gamma^t r_t \right]$$",
    r"$T(n) = 2T\left(\frac{n}{2}\right) + \Theta(n) \Rightarrow T(n) = O(n \log n)$",
)
