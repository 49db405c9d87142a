// usage: node browser.mjs PLAYWRIGHT CHROMIUM URL NAME [SCREENSHOT]
//
// Opens the URL of a page of Gatekit in a browser without scripts, logs in with a name at the
// provider, presses the button of the page, consents, and prints the heading of the last page. The
// other lines of stdout are the headings of Gatekit's pages and the texts of their lists.
import { pathToFileURL } from 'node:url'

const [library, executablePath, url, name, screenshot] = process.argv.slice(2)
const { chromium } = (await import(pathToFileURL(library))).default

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
const context = await browser.newContext({ javaScriptEnabled: false })
const page = await context.newPage()
page.setDefaultTimeout(20_000)
try {
  let answer = await page.goto(url)
  for (;;) {
    const login = page.locator('input[name=login]')
    if (await login.count()) {
      await login.fill(name)
      await page.locator('input[name=password]').fill('x')
      await page.locator('button[type=submit]').click()
    } else if (await page.locator('input[value=consent]').count()) {
      await page.locator('button[type=submit]').click()
    } else {
      console.log(await page.getByRole('main').getByRole('heading', { level: 1 }).innerText())
      const button = page.getByRole('button', { name: 'Go on to the login' })
      if (!(await button.count())) break
      for (const text of await page.getByRole('definition').allInnerTexts()) console.log(text)
      if (screenshot) await page.screenshot({ path: screenshot })
      await page.keyboard.press('Tab') // to the only thing that takes the focus
      await page.keyboard.press('Enter')
      await page.waitForURL((u) => u.href !== url)
    }
    await page.waitForLoadState()
  }
  const cookies = (await context.cookies()).filter((c) => c.name.includes('gatekit'))
  console.log(cookies.map((c) => `${c.name} ${c.secure} ${c.httpOnly} ${c.sameSite}`).join())
} finally {
  await browser.close()
}
