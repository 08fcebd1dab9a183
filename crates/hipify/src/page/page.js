"use strict";
(function () {
  var table = document.getElementById("files"), body = table.tBodies[0], heads = table.tHead.rows[0].cells;
  function value(row, at) { var cell = row.cells[at]; return cell.dataset.v === undefined ? cell.textContent : +cell.dataset.v; }
  Array.prototype.forEach.call(heads, function (head, at) {
    head.firstElementChild.addEventListener("click", function () {
      var down = head.getAttribute("aria-sort") !== "descending" && (head.getAttribute("aria-sort") === "ascending" || head.classList.contains("n"));
      Array.prototype.forEach.call(heads, function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      var rows = Array.prototype.slice.call(body.rows).sort(function (a, b) {
        var x = value(a, at), y = value(b, at), order = x < y ? -1 : x > y ? 1 : 0;
        return down ? -order : order;
      });
      rows.forEach(function (row) { body.appendChild(row); });
    });
  });
  document.getElementById("filter").addEventListener("input", function () {
    var wanted = this.value.toLowerCase();
    Array.prototype.forEach.call(body.rows, function (row) { row.hidden = row.textContent.toLowerCase().indexOf(wanted) < 0; });
  });
  function open() {
    var target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  }
  addEventListener("hashchange", open);
  open();
})();
