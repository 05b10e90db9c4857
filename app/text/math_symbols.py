"""TeX's names of symbols, and Unicode's raised and lowered forms. Data for math_text.py."""

from __future__ import annotations


def _table(lines: str) -> dict[str, str]:
    words = lines.split()
    return dict(zip(words[::2], words[1::2], strict=True))


SYMBOLS = _table(r"""
alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν
xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω
Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω
infty ∞ partial ∂ nabla ∇ hbar ℏ ell ℓ Re ℜ Im ℑ aleph ℵ beth ℶ wp ℘ emptyset ∅ varnothing ∅ imath ı jmath ȷ
forall ∀ exists ∃ nexists ∄ neg ¬ lnot ¬ top ⊤ bot ⊥ angle ∠ measuredangle ∡ triangle △ square □ Box □ diamond ⋄
blacksquare ■ qed □ checkmark ✓ prime ′ degree ° dagger † ddagger ‡ S § P ¶ pounds £ copyright ©
clubsuit ♣ diamondsuit ♢ heartsuit ♡ spadesuit ♠ flat ♭ natural ♮ sharp ♯
circ ∘ bullet • star ⋆ ast ∗ bigcirc ◯ backslash ∖
dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱ dotsc … dotsb ⋯ dotsm ⋯ dotsi ⋯ colon :
langle ⟨ rangle ⟩ lceil ⌈ rceil ⌉ lfloor ⌊ rfloor ⌋ lbrace { rbrace } lbrack [ rbrack ] vert | lvert | rvert |
Vert ‖ lVert ‖ rVert ‖ surd √ ulcorner ⌜ urcorner ⌝
""")

# Binary symbols: with a space before and after.
RELATIONS = _table(r"""
cdot · times × div ÷ pm ± mp ∓ oplus ⊕ ominus ⊖ otimes ⊗ oslash ⊘ odot ⊙ dotplus ∔ mid ∣ parallel ∥
cap ∩ cup ∪ sqcap ⊓ sqcup ⊔ uplus ⊎ wedge ∧ land ∧ vee ∨ lor ∨ setminus ∖ wr ≀ amalg ⨿
leq ≤ le ≤ leqslant ⩽ geq ≥ ge ≥ geqslant ⩾ neq ≠ ne ≠ equiv ≡ approx ≈ approxeq ≊ sim ∼ simeq ≃ cong ≅ propto ∝
ll ≪ gg ≫ prec ≺ succ ≻ preceq ⪯ succeq ⪰ doteq ≐ triangleq ≜ coloneqq ≔ asymp ≍ lesssim ≲ gtrsim ≳
in ∈ notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ supsetneq ⊋ nsubseteq ⊈ sqsubseteq ⊑ sqsupseteq ⊒
perp ⟂ models ⊨ vdash ⊢ dashv ⊣ Vdash ⊩ vDash ⊨ bowtie ⋈ nmid ∤
to → rightarrow → gets ← leftarrow ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ iff ⟺ implies ⟹
impliedby ⟸ mapsto ↦ longmapsto ⟼ longrightarrow ⟶ longleftarrow ⟵ Longrightarrow ⟹ Longleftarrow ⟸
Longleftrightarrow ⟺ longleftrightarrow ⟷ uparrow ↑ downarrow ↓ updownarrow ↕ Uparrow ⇑ Downarrow ⇓ nearrow ↗
searrow ↘ swarrow ↙ nwarrow ↖ hookrightarrow ↪ hookleftarrow ↩ rightharpoonup ⇀ rightharpoondown ⇁
leftharpoonup ↼ leftharpoondown ↽ rightleftharpoons ⇌ leadsto ⇝ rightsquigarrow ⇝ therefore ∴ because ∵ pmod mod
""")

LARGE = _table(r"""
sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ iiint ∭ oint ∮ bigcap ⋂ bigcup ⋃ bigsqcup ⨆ bigvee ⋁ bigwedge ⋀ bigoplus ⨁
bigotimes ⨂ bigodot ⨀ biguplus ⨄
""")

FUNCTIONS = frozenset(
    [
        "arccos",
        "arcsin",
        "arctan",
        "arg",
        "cos",
        "cosh",
        "cot",
        "coth",
        "csc",
        "deg",
        "det",
        "dim",
        "exp",
        "gcd",
        "hom",
        "inf",
        "ker",
        "lg",
        "lim",
        "liminf",
        "limsup",
        "ln",
        "log",
        "max",
        "min",
        "Pr",
        "sec",
        "sin",
        "sinh",
        "sup",
        "tan",
        "tanh",
        "argmax",
        "argmin",
        "lcm",
        "sgn",
        "tr",
        "rank",
        "span",
    ]
)

_NEGATED = dict(zip("=∈∋⊂⊃⊆⊇≡≈∼<>≤≥∣∥∃", "≠∉∌⊄⊅⊈⊉≢≉≁≮≯≰≱∤∦∄", strict=True))
NEGATED = {**_NEGATED, "⊨": "⊭", "⊢": "⊬", "→": "↛", "←": "↚", "⇒": "⇏", "⇐": "⇍"}

RAISED = dict(zip(
    "0123456789+-−=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVWαβγδεθϕφχ′∗*∘",
    "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂᵅᵝᵞᵟᵋᶿᶲᵠᵡ′**°", strict=True,
))  # fmt: skip
LOWERED = dict(zip(
    "0123456789+-−=()aehijklmnoprstuvxβγρφχ",
    "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ", strict=True,
))  # fmt: skip

ACCENTS = {
    "hat": "\u0302", "widehat": "\u0302", "bar": "\u0304", "overline": "\u0305", "tilde": "\u0303",
    "widetilde": "\u0303", "dot": "\u0307", "ddot": "\u0308", "vec": "\u20d7", "acute": "\u0301", "grave": "\u0300",
    "check": "\u030c", "breve": "\u0306", "underline": "\u0332", "mathring": "\u030a",
}  # fmt: skip

# Letters of other alphabets that all usual fonts have; the others stay as they are, which is readable.
_SCRIPT = dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True))
ALPHABETS = {
    "mathbb": dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True)),
    "mathcal": _SCRIPT,
    "mathscr": _SCRIPT,
    "mathfrak": dict(zip("CHIRZ", "ℭℌℑℜℨ", strict=True)),
}
ALPHABETS["Bbb"] = ALPHABETS["mathbb"]
